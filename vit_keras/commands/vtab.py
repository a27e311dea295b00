"""Fine-tune a checkpoint on the tasks of VTAB-1k.

examples:
  vit-keras vtab ViT-B_16.npz --out vtab                   # all 19 tasks
  vit-keras vtab ViT-B_16.npz --out vtab --tasks cifar100 dtd
"""

import pathlib

from vit_keras.commands import options as shared
from vit_keras.support import extras


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    add("checkpoint", None, "file or folder of any format")
    add("--out", "PATH", "folder of the runs and the results", shared.folder, required=True)
    add("--tasks", "TASK", "tasks to run (all 19)", nargs="+")
    add("--setting", None, "paper, or bit for the BiT-HyperRule", default="paper")
    add("--data_dir", "DIR", "folder of TensorFlow Datasets")
    add("--manual_dir", "DIR", "archives downloaded by hand")
    add("--config", "FILE", "YAML of fields that replace the setting's")


def run(options: shared.Options) -> None:
    extras.check("tensorflow_datasets", "yaml", "matplotlib")
    from vit_keras import experiments
    from vit_keras.config.parsing import read_yaml

    experiments.fine_tune_tasks(
        options.checkpoint,
        options.out,
        tasks=options.tasks,
        setting=options.setting,
        data={"data_dir": options.data_dir, "manual_dir": options.manual_dir},
        changes=read_yaml(options.config) if options.config else None,
    )
    out = pathlib.Path(options.out)
    print(f"{(out / 'vtab.md').read_text()}written: {out / 'vtab.csv'}, {out / 'vtab.md'}")
