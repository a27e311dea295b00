"""published.yaml agrees with the paper, and its tables agree with each other."""

import pytest

from studies.results import published, rows_of
from studies.table5 import paper_rows
from tests.test_recipes import TABLE_3, TABLE_4

pytestmark = pytest.mark.once


def rows_by(name, key):
    return {row[key]: row for row in rows_of(name)}


def test_table_2_has_the_papers_values():
    rows = rows_by("table2", "task")
    assert rows["ImageNet"]["ViT-H/14 JFT"] == [88.55, 0.04]
    assert rows["ReaL"]["ViT-L/16 JFT"] == [90.54, 0.03]
    assert rows["VTAB"]["BiT-L R152x4"] == [76.29, 1.70]
    assert rows["Flowers"]["ViT-L/16 I21k"] == [99.61, 0.02]
    assert rows["Pets"]["Noisy Student L2"] is None
    assert published("table2")["core_days"] == [2500, 680, 230, 9900, 12300]


def test_tables_3_and_4_are_the_tables_of_the_recipes_tests():
    rows = rows_by("table3", "config")
    assert rows.keys() == TABLE_3.keys()
    images = published("table3")["images"]
    for config, (_, count, epochs, *rest) in TABLE_3.items():
        row = rows[config]
        values = [row[key] for key in ("learning_rate", "decay", "weight_decay", "dropout")]
        assert values == rest[:4] and images[row["dataset"]] == count
        assert row["epochs"][-1] == epochs
    rows = rows_by("table4", "config")
    assert rows.keys() == TABLE_4.keys() | {"vtab"}
    for config, (steps, rates, _) in TABLE_4.items():
        assert (rows[config]["steps"], rows[config]["learning_rates"]) == (steps, list(rates))


def test_tables_5_6_and_7_agree_where_they_print_the_same_runs():
    five = {(task, model): numbers for task, model, *numbers in paper_rows()}
    assert five["CIFAR-100", "L/16"] == [86.35, 93.44, 94.04]
    six = {(row["variant"], row["epochs"]): row for row in rows_of("table6")}
    tasks = ("ImageNet", "ReaL", "CIFAR-10", "CIFAR-100", "Pets", "Flowers")
    for model, epochs in (("B/16", 7), ("B/32", 7), ("L/16", 14), ("L/32", 7)):
        for task in tasks:
            assert six[model, epochs][task] == five[task, model][2]
    seven = rows_of("table7")
    columns = [row.pop("task") for row in seven]
    assert columns[-1] == "average"
    for name in seven[0]:
        values = [row[name] for row in seven]
        assert sum(values[:-1]) / 5 == pytest.approx(values[-1], abs=0.005)
    for model in ("R50x1", "R152x2"):
        adam = [row[f"{model} Adam"] for row in seven[:-1]]
        assert adam == [six[model, 7][task] for task in columns[:-1]]
