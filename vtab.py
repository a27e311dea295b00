"""Fine-tunes a checkpoint on the tasks of VTAB-1k: `python vtab.py CHECKPOINT --out DIR`."""

import argparse
import pathlib
import subprocess
import sys

TRAIN = pathlib.Path(__file__).parent / "train.py"


def arguments(given):
    parser = argparse.ArgumentParser(prog="vtab.py", description=__doc__)
    parser.add_argument("checkpoint", help="a file or folder of any format")
    parser.add_argument("--out", required=True, help="folder of the runs and the results")
    parser.add_argument("--tasks", nargs="+", help="by default all 19")
    parser.add_argument("--setting", default="paper", help="paper, or bit for the BiT-HyperRule")
    parser.add_argument("--data_dir", help="folder of TensorFlow Datasets")
    parser.add_argument("--manual_dir", help="folder of archives that are downloaded by hand")
    parser.add_argument("--config", help="a YAML file of fields that go before the setting's")
    return parser.parse_args(given)


def main(given=None):
    options = arguments(given)

    from vit_keras.evaluation import vtab
    from vit_keras.files import write_text

    out, accuracies, failed = pathlib.Path(options.out), {}, []
    configs = task_configs(options, out)
    for name, fields in configs.items():
        found = accuracy(out / name, fields, out / f"{name}.yaml")
        if found is None:
            failed.append(name)
            continue
        accuracies[name] = found
        as_csv, as_markdown = vtab.tables(accuracies)
        write_text(out / "vtab.csv", as_csv)
        write_text(out / "vtab.md", as_markdown)
        print(f"{name}: {100 * found:.2f}%", flush=True)
    if accuracies:
        print(f"{as_markdown}written: {out / 'vtab.csv'}, {out / 'vtab.md'}")
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(configs)} tasks have no result: {', '.join(failed)}. "
            "The same command goes on with them"
        )


def task_configs(options, out):
    import yaml

    from vit_keras.data.vtab import TASKS
    from vit_keras.evaluation import vtab

    how = {"data": {"data_dir": options.data_dir, "manual_dir": options.manual_dir}}
    if options.config:
        how["changes"] = yaml.safe_load(pathlib.Path(options.config).read_text())
    weights, names = options.checkpoint, options.tasks or TASKS
    return {
        name: vtab.task_config(name, options.setting, weights, workdir=out / name, **how)
        for name in names
    }


def accuracy(folder, fields, file):
    """A task's accuracy, trained for where the run has not come to its end; None if it fails."""
    from vit_keras.evaluation import vtab

    vtab.write_config(fields, file)
    found = vtab.accuracy_of(folder, fields["total_steps"])
    if found is None:
        print(f"{folder.name}: training for {fields['total_steps']} updates", flush=True)
        subprocess.run([sys.executable, str(TRAIN), "--config", str(file)])
        found = vtab.accuracy_of(folder, fields["total_steps"])
    return found


if __name__ == "__main__":
    try:
        main()
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"vtab.py: error: {error}")
