"""Upload a run to the Hugging Face hub, with transformers' files and a card.

examples:
  vit-keras push runs/pets hf://ann/pets --license apache-2.0
  vit-keras push runs/pets hf://ann/pets --private
  vit-keras push runs/pets hf://ann/pets --out pets       # writes the folder, uploads nothing
"""

import argparse
import pathlib
import tempfile

from vit_keras.commands import options as shared


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    add("run", "RUN", "folder of a complete run")
    add("address", "ADDRESS", "hf://USER/NAME, created if necessary")
    add("--license", "NAME", "the hub's name of the license, such as apache-2.0 (none is stated)")
    flag("--private", "make a new repository visible to you alone")
    flag("--dry_run", "print the card, upload nothing")
    add("--out", "PATH", "write the folder here, and upload nothing", shared.folder)


def run(options: argparse.Namespace) -> None:
    from vit_keras import runs
    from vit_keras.exporting import hub_folder

    repository = hub_folder.repository_of(options.address)
    if not (options.out or options.dry_run):
        hub_folder.check_token()
    trained = runs.find_run(options.run)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.out or pathlib.Path(temporary) / "model")
        names = hub_folder.write_hub_folder(trained, folder, repository, options.license)
        if options.dry_run:
            print((folder / hub_folder.CARD).read_text(encoding="utf-8"))
        if options.out or options.dry_run:
            print(f"{options.out or options.address}: {', '.join(names)}; nothing was uploaded")
            return
        print(hub_folder.upload(folder, repository, options.private))
