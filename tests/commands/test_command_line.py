"""The command as such: help, versions, spelling, exit codes."""

import shlex

import pytest

from tests.helpers import ROOT, run_script
from vit_keras import commands

pytestmark = pytest.mark.once


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_help_fits_a_screen_and_ends_with_examples_that_parse(name, capsys):
    commands.run([])
    command, listed = commands.command(name), capsys.readouterr().out
    assert f"  {name} " in listed and command.__doc__.splitlines()[0] in listed
    commands.run([name, "--help"])
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert len(lines) <= 42 and max(map(len, lines)) <= 105
    examples = lines[lines.index("examples:") + 1 :]
    assert examples and all(f"vit-keras {name}" in x or "vit_keras train" in x for x in examples)
    for line in examples:
        words = shlex.split(line.split("|")[-1].split("#")[0].split(">")[0], posix=True)
        if words[0] == "vit-keras" and "my.yaml" not in words:
            assert words[1] == name
            commands.parse(command, words[2:], "vit-keras")


def test_an_unknown_backend_is_one_sentence():
    done = run_script("-m", "vit_keras", "info", "B/16", check=False, backend="jx")
    assert done.returncode == 1
    assert done.stderr == "vit-keras info: error: Unable to import backend : jx\n"


def test_help_does_not_need_docstrings():
    done = run_script("-OO", "-m", "vit_keras", "info", "--help")
    assert "\nexamples:\n  vit-keras info" in done.stdout


def test_options_are_written_with_underscores_or_dashes():
    for name in ("--batch-eval", "--batch_eval"):
        words = commands.options.spell_out(["runs/a", name, "7"])
        options = commands.parse(commands.command("evaluate"), words, "vit-keras evaluate")
        assert options.batch_eval == 7
    spelled = commands.options.spell_out(["--optimizer.learning-rate=1e-3", "--x", "a-b", "-"])
    assert spelled == ["--optimizer.learning_rate=1e-3", "--x", "a-b", "-"]


WRONG = [  # the words of a command line, and a part of its message
    (["trane"], "There is no command 'trane'. Did you mean train?"),
    (["evaluate", "a", "--batch-evl", "3"], "Did you mean --batch_eval?"),
    (["bench", "a", "--rounds", "0"], "--rounds: must be a whole number, at least 1. Rec"),
    (["evaluate", "a", "b", "--predictions", "c.csv"], "takes one model. Received: 2 models"),
    (["evaluate", "a", "--knn", "5", "--real", "b"], "--real does not apply to --knn. Leave out"),
    (["evaluate", "a", "--fewshot", "5", "--tiles"], "--tiles does not apply to --fewshot. Leave"),
    (["evaluate", "a", "--overlap", "0.5"], "--overlap needs --tiles"),
    (["predict", "a", "b", "--overlap", "0.5"], "--overlap needs --tiles"),
    (["bench", "a", "--split", "train"], "--split needs --dataset"),
    (["demo-data", "places", "a", "--test_count", "5"], "--test_count does not apply to places"),
    (["check", "a", "--quick", "--model", "b"], "argument --model: not allowed with argument --q"),
    (["check", "a", "--out", "b.json", "--out", "c.json"], "each kind of file at most once. "),
    (["visualize", "a", "--out", __file__], "argument --out: must be a folder. Received: "),
    (["train", "--lits"], "Did you mean --list"),
    (["train", "digits"], "unrecognized arguments: digits. Give fields as --FIELD VALUE"),
    (["train", "--config", "--epochs", "3"], "`--config` needs a value"),
    (["predict", "a", "b", "--out", "c.xlsx"], "end in .csv, .jsonl, .parquet or .html, or --fo"),
    (["labels", "cat", "--weights", "a", "--out", "b.csv"], "--out: must end in .npz. Receive"),
    (["predict", "a", "b", "--attention", "--out", "c.csv"], "Received: csv. Give --out page.htm"),
]
FAILING = [
    (["train", "--dataset", "mnist"], "`dataset` must be one of digits, folder:PATH"),
    (["train", "--dataset", "birds.csv"], "Did you mean table:birds.csv?"),
    (["train", "--dataset", "https://a/b.tar"], "Did you mean shards:https://a/b.tar?"),
    (["pack", "Folder:a", "--out", "b"], "must be one of digits, folder:PATH, table:FILE"),
    (["train", "--config", "x.yaml"], "'x.yaml'. `vit-keras train --list` prints the recipes"),
    (["evaluate", "nowhere"], "no run or checkpoint at 'nowhere'"),
    (["info", "nowhere"], "There is no file, folder or variant 'nowhere'"),
    (["info", "dinov2_vits14"], "Did you mean DINOv2-S/14?"),
]


@pytest.mark.parametrize(
    ("code", "arguments", "message"),
    [*((2, *row) for row in WRONG), *((1, *row) for row in FAILING)],
)
def test_errors_have_a_code_and_a_sentence(code, arguments, message, capsys):
    assert commands.main(arguments) == code
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == code  # a wrong line names the help, too
    named = arguments[0] in commands.COMMANDS
    assert error.startswith(f"vit-keras {arguments[0]}: error: " if named else "vit-keras: error")


def test_the_scripts_are_the_command(tmp_path):
    done = run_script(ROOT / "train.py", "--total_step", "5", check=False, cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "vit-keras train: error: " in done.stderr and "Did you mean --total_steps" in done.stderr


@pytest.mark.parametrize("arguments", [["--version"], ["train", "--list"]])
def test_help_waits_for_no_library(arguments):
    done = run_script("-X", "importtime", "-m", "vit_keras", *arguments)
    lines = done.stderr.splitlines()
    imported = {line.split("|")[-1].strip() for line in lines if line.startswith("import time:")}
    assert len(lines) == len([line for line in lines if line.startswith("import time:")])
    assert "vit_keras.commands" in imported
    assert not imported & {"keras", "tensorflow", "jax", "torch", "numpy"}


def test_ctrl_c_while_libraries_are_imported_ends_in_one_line(tmp_path):
    """Even where Python ignores what is raised, as in a callback of the garbage collector."""
    (tmp_path / "keras.py").write_text(
        "import gc, os, signal, time\n"
        "def kill(*_):\n  gc.callbacks.clear()\n  os.kill(os.getpid(), signal.SIGINT)\n"
        "gc.callbacks.append(kill)\ngc.collect()\ntime.sleep(60)\n"
    )
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program = tmp_path / "vit-keras"  # a console script; jobs in the background ignore Ctrl-C
    program.write_text(f"{start}import sys\nfrom vit_keras.commands import main\nsys.exit(main())")
    paths = f"{tmp_path}:{ROOT}"
    done = run_script(program, "info", "B/16", check=False, PYTHONPATH=paths, backend="jax")
    assert done.returncode == 130 and done.stderr == "vit-keras info: error: interrupted\n"
