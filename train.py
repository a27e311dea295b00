"""Trains a Vision Transformer: `KERAS_BACKEND=jax python train.py --config configs/digits.yaml`."""

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

    import keras

    from vit_keras import data, evaluation, figures, runs
    from vit_keras.models import from_config
    from vit_keras.training.loop import compile_model, train
    from vit_keras.weights import save_model

    keras.utils.set_random_seed(config.seed)
    dataset = data.load(config.dataset, config.model.channels)
    classes = len(dataset.class_names)
    model = from_config(config.model, num_classes=classes, seed=config.seed, name=config.name)
    model.class_names = dataset.class_names
    compile_model(model, config)
    run = runs.open_run(config)

    shared = {"image_size": model.input_shape[1:3], "preprocessing": model.preprocessing}
    held_out = data.eval_batches(dataset.split("test"), batch=config.batch_eval, **shared)
    order = {"seed": config.seed, "batch": config.batch, "total_steps": config.total_steps}
    order |= {"augment_config": config.augment, **shared}

    def batches(start_step):
        made = data.train_batches(dataset.split("train"), start_step=start_step, **order)
        return data.one_hot(made, classes)

    print(f"{run.folder}: {model.count_params():,} parameters, {config.total_steps} updates")
    rows = train(model, run, batches, data.one_hot(held_out, classes))
    save_model(model, run.model_file)
    if rows:
        figures.curves(rows, run.folder / "curves.png")
    found = evaluation.report(*evaluation.predict(model, held_out), dataset.class_names)
    print(f"accuracy {100 * found['accuracy']:.2f}% of {found['images']} held-out images")
    print(f"next: python evaluate.py {run.folder} ; python export.py {run.folder}")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"train.py: error: {error}")
