"""Trains a Vision Transformer: `KERAS_BACKEND=jax python train.py --config configs/digits.yaml`."""

import json
import os
import pathlib
import sys

CONFIGS = pathlib.Path(__file__).parent / "configs"

# Torch's threads spin while they wait for each other: where the cores are shared, a step of a
# small model took 1545 ms instead of 61. Read when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def main(arguments=None):
    from vit_keras import cli

    config = cli.parse(arguments, "train.py", default=str(CONFIGS / "digits.yaml"))

    from vit_keras.training.sweep import sweep

    if config.sweep:
        print(sweep(config, train_run))
    else:
        train_run(config)


def train_run(config):
    """Trains the run of a `Config`, or goes on with it; its report on the held-out images."""
    import keras

    from vit_keras import data, evaluation, machine, runs
    from vit_keras.training import distribution
    from vit_keras.training.loop import train

    machine.keep_compiled()
    keras.utils.clear_session()
    keras.utils.set_random_seed(config.seed)
    with distribution.open(config) as topology:
        dataset = data.load(config.dataset, config.model.channels, config.data)
        with topology.scope():
            model = build(config, dataset.class_names)
        with topology.chief_first():
            run = runs.open_run(config)
            data.check_unchanged(dataset, run.folder)
        dataset.unreadable.keep(run.folder / "unreadable.txt")

        wanted = model.input_shape[1:3], model.preprocessing
        feed = data.Feed(dataset, config, *wanted, topology.shard)
        callbacks = []
        if config.fewshot_every:
            how = {"every": config.fewshot_every, **feed.prepared}
            held_out = feed.held_out(), feed.num_classes
            callbacks = [evaluation.few_shot_callback(feed.train, *held_out, **how)]
        if topology.is_chief:
            size = f"{model.count_params():,} parameters"
            print(f"{run.folder}: {size}, {config.total_steps} updates")
        validation = feed.validation(pad=topology.distributed)
        rows = train(model, run, feed.training, validation, topology, callbacks)
        model = topology.local(model, lambda: build(config, dataset.class_names))
    return finish(model, run, rows, dataset, feed) if topology.is_chief else None


def build(config, class_names):
    """The compiled model of a run, with the weights that it starts from."""
    from vit_keras import models, runs, weights
    from vit_keras.training.loop import compile_model

    options = {"num_classes": len(class_names), "seed": config.seed, "name": config.name}
    model = models.from_config(config.model, **options)
    if config.model.weights:
        path = runs.find_weights(config.model.weights, config.model.variant)
        weights.load(model, path, head="drop")  # ours starts at zero
    model.class_names = class_names
    compile_model(model, config)
    return model


def finish(model, run, rows, dataset, feed):
    """Writes the model and what became of it."""
    from vit_keras import evaluation, figures, runs, weights

    weights.save_model(model, run.model_file)
    if rows:
        figures.curves(rows, run.folder / "curves.png")
    logits, labels = evaluation.predict(model, feed.held_out())
    found = evaluation.report(logits, labels, dataset.class_names)
    runs.write_text(run.folder / "report.json", json.dumps(found, indent=1))
    print(f"accuracy {100 * found['accuracy']:.2f}% of {found['images']} held-out images")
    if dataset.unreadable.names:
        print(dataset.unreadable.report())
    print(f"next: python evaluate.py {run.folder} ; python export.py {run.folder}")
    return found


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError, FloatingPointError) as error:
        sys.exit(f"train.py: error: {error}")
