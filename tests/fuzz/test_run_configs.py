"""Configurations of runs, damaged and forged, end in a message that names the file."""

import pytest
import yaml
from hypothesis import given, strategies

from tests.fuzz.strategies import damages, fixed
from vit_keras.config import (
    Config,
    UsageError,
    dump_config,
    parse_config,
    read_config,
    recipe_names,
)
from vit_keras.config.recipes import find_recipe

pytestmark = pytest.mark.once

WHOLE = dump_config(read_config("digits")).encode()
VALUES = ["x", "", [], {}, [1, "x"], {"a": 1}, True, -1, 0, 2.5, 10**30, -(10**30), 1e300]
VALUES += [
    float("nan"),
    float("inf"),
    float("-inf"),
    None,
    "null",
    "1e999",
    "\x1b[2J\u202e",
    "0x1F",
]
FORGED = {
    "aliases": b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    "aliases without end": b"name: &a [*a]\n",
    "merge": b"a: &a {seed: 1}\n<<: *a\n",
    "merges": b"".join(
        [
            b"a0: &a0 {seed: 1}",
            *(b"\na%d: &a%d {<<: [*a%d, *a%d]}" % (i, i, i - 1, i - 1) for i in range(1, 30)),
        ]
    ),
    "brackets": b"[" * 100_000,
    "objects": b"{a: " * 100_000,
    "dashes": b"- " * 100_000,
    "no UTF-8": b"name: \xff\xfe",
    "NUL": b"name: a\0b",
    "object of Python": b"name: !!python/object/apply:os.system [true]\n",
    "date": b"seed: 2001-99-99\n",
    "number of 5,000 digits": b"seed: " + b"1" * 5000,
    "sixties": b"seed: " + b"1:" * 5000 + b"1",
    "base64": b"name: !!binary '*'\n",
    "key that is a list": b"? [a, b]\n: c\n",
    "number": b"5",
    "list": b"[1, 2]",
    "text": b"hello",
    "name twice": b"seed: 1\nseed: 2\n",
    "two documents": b"seed: 1\n---\nseed: 2\n",
    "two megabytes": b"# " + b"x" * 2**21,
    "nothing": b"",
}


def places(fields, prefix=()):
    for name, value in fields.items():
        yield (*prefix, name)
        if isinstance(value, dict):
            yield from places(value, (*prefix, name))


PLACES = list(places(yaml.safe_load(WHOLE)))


def read(path, content):
    """Reads a configuration: it is one, or the error says which file is wrong.

    On a command line the user names the file, and the error names the field.
    """
    path.write_bytes(content)
    for call in (read_config, lambda file: parse_config(["--config", str(file)])):
        try:
            assert isinstance(call(path), Config)
        except (UsageError, FileNotFoundError) as error:
            assert type(error) in (UsageError, FileNotFoundError)
            assert call is not read_config or path.name in str(error), error


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("run") / "config.yaml"


def test_damaged_configurations_name_their_file(path):
    @fixed(25)
    @given(strategies.sampled_from(["", *recipe_names()]), damages)
    def check(recipe, damage):
        read(path, damage(find_recipe(recipe).read_bytes() if recipe else WHOLE))

    check()


def test_fields_with_any_value_name_their_file(path):
    @fixed(40)
    @given(strategies.sampled_from(PLACES), strategies.sampled_from(VALUES))
    def check(place, value):
        fields = inner = yaml.safe_load(WHOLE)
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = value
        read(path, yaml.safe_dump(fields).encode())

    check()


@pytest.mark.parametrize("name", FORGED)
def test_forged_configurations_name_their_file(path, name):
    read(path, FORGED[name])


def test_a_section_inside_another_must_hold_fields(path):
    path.write_bytes(WHOLE.replace(b"  dino:\n", b"  dino: [1, x]\n  other:\n"))
    with pytest.raises(UsageError, match=r"config.yaml' .*`pretext.dino` is a group of fields"):
        read_config(path)


def test_brackets_are_not_read_to_their_end(path):
    """PyYAML takes minutes for these 100 kB."""
    path.write_bytes(FORGED["brackets"])
    with pytest.raises(UsageError, match="config.yaml' cannot be read .*more than 20 levels"):
        read_config(path)
