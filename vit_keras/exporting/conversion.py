"""Converts a saved model in a process with one backend: `conversion JOB.json` by `python -m`.

TensorFlow's converters take only TensorFlow models, and torch's take only torch models. A model
trained on another backend is therefore opened here from its `.keras` file. `jobs` starts the
process and writes its `JOB.json`.
"""

import json
import pathlib
import sys

from vit_keras import weights
from vit_keras.exporting.inference_model import for_inference
from vit_keras.exporting.serving import with_tokens
from vit_keras.exporting.targets import TARGETS, takes_prepared
from vit_keras.models import with_image_size


def main(job_file: str) -> None:
    job = json.loads(pathlib.Path(job_file).read_text())
    model, plan = weights.open(job["model"]), job["plan"]
    if job["output"] == "features" and takes_prepared(plan["formats"]):
        model = with_tokens(model)
    merging = plan["token_merging"], plan["merging_schedule"]
    rewritten = for_inference(model, *merging, with_attention=plan["attention"])
    rewritten = with_image_size(rewritten, None) if plan["dynamic_size"] else rewritten
    for format, precision, path, batch in job["files"]:
        fault = ""
        try:
            served = TARGETS[format].graph(rewritten, job["output"], plan["raw"])
            options = {"opset": plan["opset"]} if format == "onnx" and plan["opset"] else {}
            TARGETS[format].precisions[precision].make(served, path, batch, **options)
        except Exception as error:  # each converter raises its own errors
            fault = f"{type(error).__name__}: {error}"
        with open(job["told"], "a") as told:
            told.write(json.dumps(fault) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
