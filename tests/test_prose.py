"""The checks of prose refuse each phrase of the list, and leave code and good prose alone."""

import pathlib

import pytest

from tests.helpers import run_script
from tools import prose

pytestmark = pytest.mark.once

REFUSED = [
    "The file is of a model.",
    "Its weights are of float32.",
    "The rate is that of the run.",
    "The names are those of the paper.",
    "Zeros stand in the stead of labels.",
    "Which path is faster is asked once.",
    "A flag says whose it is.",
    "Write the the name.",  # one of proselint's
]


def messages(name, text):
    return [message for _, message in prose.faults(pathlib.Path(name), text)]


@pytest.mark.parametrize("sentence", REFUSED)
def test_phrases_are_refused_in_pages_docstrings_comments_and_errors(sentence):
    wrapped = sentence.replace(" ", "\n")  # a phrase may cross the end of a line
    words = sentence.split()
    first, last = " ".join(words[:-3]), " ".join(words[-3:])
    assert len(messages("page.md", wrapped)) == 1
    assert len(messages("code.py", f'"""{wrapped}"""')) == 1
    assert len(messages("code.py", f"x = 1\n# {first}\n# {last}\n")) == 1
    assert len(messages("code.py", f'raise ValueError(f"{{x}} {first} "\n "{last}")')) == 1
    assert len(messages("recipe.yaml", f"# {sentence}\nname: x\n")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "```\nx is of y\n```\nTake `is of` out.",
        "The table has 2 2 and 3 3. One of the four is on.",
        "Instead of labels there are zeros. The number of tokens is N.",
    ],
)
def test_code_and_good_prose_pass(text):
    assert not messages("page.md", text)


@pytest.mark.parametrize("name", sorted(prose.NAMES))
def test_names_that_say_nothing_are_refused(name):
    for code in (f"{name} = 1", f"def f({name}): pass", f"def {name}(): pass", f"{name}: int = 1"):
        assert len(messages("vit_keras/code.py", code)) == 1
    assert not messages("vit_keras/code.py", f"f({name}=1).{name}")


def test_the_command_names_file_and_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Title\n\nThe file is of a model.\n")
    done = run_script("tools/prose.py", page, check=False)
    assert done.returncode == 1 and f"{page}:3: phrases: Write" in done.stdout
    page.write_text("# Title\n\nThe file holds a model.\n")
    assert run_script("tools/prose.py", page).stdout == ""
