"""The pages of the families have the tables of the rows, and CONTRIBUTING's family works."""

import re

import pytest

from tests.helpers import ROOT, shapes_only
from tools.family_tables import PAGES, TABLE, WEIGHTS, filled
from vit_keras import applications, list_weights, variants, weights
from vit_keras.models import from_variant
from vit_keras.variants import families
from vit_keras.variants.families import FAMILIES

pytestmark = pytest.mark.once


def test_every_family_has_a_page_with_the_table_of_its_row():
    shown, examples = [], []
    for page in [*PAGES.glob("*.md"), WEIGHTS]:
        text = page.read_text()
        assert filled(text) == text, f"{page.name}: run python -m tools.family_tables"
        shown += [match[2] for match in TABLE.finditer(text)]
        examples += re.findall(r"applications\.(\w+)\([^)]*weights=\"([^\"/]+)\"", text)
    assert sorted(shown) == sorted(FAMILIES)
    table = WEIGHTS.read_text().partition("<!-- published weights -->")[2]
    assert table.count("](https://") == len(list_weights())
    assert len(examples) > 10
    for constructor, name in examples:
        assert name in weights.names(applications.OF_FAMILIES[constructor]), constructor


def test_the_family_of_contributing_is_built(monkeypatch):
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## A new family")[1]
    namespace: dict = {}
    exec(re.search(r"```python\n(.*?)```", section, re.DOTALL)[1], namespace)
    family = namespace["EXAMPLE"]
    assert [family.function_of(size) for size in family.sizes] == ["ExampleS16", "ExampleB16"]
    monkeypatch.setitem(families.FAMILIES, family.key, family)
    for name, row in family.variants():
        monkeypatch.setitem(variants.VARIANTS, name, row)
    with shapes_only():
        model = from_variant("Example-B/16", num_classes=7)
        assert model.get_layer("encoderblock_0").options.mlp == "swiglu"
        assert model.get_layer("registers").num_registers == 2
        assert model.resizing.positions == "bicubic_antialias"
        plain = from_variant("Example-S/16")
        assert plain.get_layer("encoderblock_0").options.mlp == "gelu"
