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

    machine.prepare()
    keras.utils.clear_session()
    keras.utils.set_random_seed(config.seed)
    with distribution.open(config) as topology:
        dataset = data.load(config.dataset, config.model.channels, config.data)
        with topology.scope():
            model, encoder = build(config, dataset.class_names)
        with topology.chief_first():
            run = runs.open_run(config)
            data.check_unchanged(dataset, run.folder)
        dataset.unreadable.record_in(run.folder / "unreadable.txt")

        wanted = encoder.input_shape[1:3], encoder.preprocessing
        feed = data.Feed(dataset, config, *wanted, topology.shard)
        few_shot = None
        if config.fewshot_every:
            how = {"every": config.fewshot_every, "encoder": encoder, **feed.eval_options}
            held_out = feed.held_out(), feed.num_classes
            few_shot = evaluation.few_shot_callback(feed.train, *held_out, **how)
        if topology.is_chief:
            size = f"{model.count_params():,} parameters"
            print(f"{run.folder}: {size}, {config.total_steps} updates")
        validation = feed.validation(pad=topology.distributed)
        more = [few_shot] if few_shot else []
        rows = train(model, run, feed.training, validation, topology, more)
        model = topology.local(model, lambda: build(config, dataset.class_names)[0])
    return finish(model, run, rows, dataset, feed, few_shot) if topology.is_chief else None


def build(config, class_names):
    """The compiled model that a run trains, and the encoder in it: itself, without a pretext."""
    from vit_keras import models
    from vit_keras.training.loop import compile_model

    model = encoder = start(config, class_names)
    if config.pretext.is_active:
        model = models.pretext_model(encoder, config.pretext, config.seed)
    compile_model(model, config)
    return model, encoder


def start(config, class_names):
    """The model of a run, with the weights that it starts from."""
    from vit_keras import models, runs, weights

    options = {"num_classes": len(class_names), "seed": config.seed, "name": config.name}
    model = models.from_model_config(config.model, **options)
    if config.model.weights:
        path = runs.find_weights(config.model.weights, config.model.variant)
        weights.load(model, path, head="drop")  # ours starts at zero
    model.class_names = class_names
    return model


def finish(model, run, rows, dataset, feed, few_shot):
    """Writes the model, of a pretext its encoder, and what became of it."""
    from vit_keras import evaluation, figures, models, weights
    from vit_keras.files import write_text

    config, names = run.config, dataset.class_names
    if config.pretext.is_active:
        model = models.copy_encoder(model, start(config, names))
    weights.save_model(model, run.model_file)
    if rows:
        figures.curves(rows, run.folder / "curves.png")
    if config.pretext.is_active:
        found = few_shot.gain(start(config, names), model) if few_shot else {}
    else:
        found = evaluation.report(*evaluation.predict(model, feed.held_out()), names)
    write_text(run.folder / "report.json", json.dumps(found, indent=1))
    print(evaluation.headline(found))
    if dataset.unreadable.names:
        print(dataset.unreadable.report())
    print(f"next: python evaluate.py {run.folder} ; python export.py {run.folder}")
    return found


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError, FloatingPointError) as error:
        sys.exit(f"train.py: error: {error}")
