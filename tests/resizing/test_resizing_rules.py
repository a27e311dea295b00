"""The rules that belong together, and who has which."""

import pytest

from vit_keras.support.resizing import INTERPOLATIONS, Resizing, interpolation

pytestmark = pytest.mark.once


def test_rules_are_checked_by_name():
    with pytest.raises(ValueError, match="`positions` must be one of 'bilinear'.*'area'"):
        Resizing(positions="area")
    with pytest.raises(ValueError, match="`patches` must be one of 'bilinear'.*'area'"):
        Resizing(patches="area")
    with pytest.raises(ValueError, match="`patch_interpolation` must be one of .*'area'"):
        Resizing().replaced(patch_interpolation="area")
    with pytest.raises(ValueError, match="`interpolation` must be one of .*'area'"):
        Resizing().replaced("area")


def test_rules_are_replaced_one_by_one():
    rules = Resizing("bicubic", "bilinear_antialias")
    assert rules.replaced() == rules
    assert rules.replaced("bilinear") == Resizing("bilinear", "bilinear_antialias")
    assert rules.replaced(None, "bicubic") == Resizing("bicubic", "bicubic")


def test_the_page_says_whose_each_rule_is():
    for name in INTERPOLATIONS:
        assert f'- "{name}"' in interpolation.__doc__
