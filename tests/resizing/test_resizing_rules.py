"""The rules that belong together, and who has which."""

import pytest

from vit_keras.support.resizing import INTERPOLATIONS, Resizing, interpolation

pytestmark = pytest.mark.once


def test_rules_are_replaced_one_by_one():
    rules = Resizing("bicubic", "bilinear_antialias")
    assert rules.replaced() == rules
    assert rules.replaced("bilinear") == Resizing("bilinear", "bilinear_antialias")
    assert rules.replaced(None, "bicubic") == Resizing("bicubic", "bicubic")


def test_the_page_says_whose_each_rule_is():
    for name in INTERPOLATIONS:
        assert f'- "{name}"' in interpolation.__doc__
