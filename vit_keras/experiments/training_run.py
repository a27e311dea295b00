"""A training run from its configuration to its report; every command and study uses it."""

import contextlib
import json
import math
import shlex
import time
from typing import Any

import keras

from vit_keras import data, evaluation, models, runs, weights
from vit_keras.config import Config
from vit_keras.experiments import run_model
from vit_keras.layers import backends
from vit_keras.runs import Run
from vit_keras.support import command_line, extras, figures, machine
from vit_keras.support.checks import read_json
from vit_keras.support.command_line import visible
from vit_keras.support.files import recover, replacing_folder, sha256, write_text
from vit_keras.training import distribution
from vit_keras.training.loop import compile_frozen, train
from vit_keras.weights.containers.checks import digest

MOST_REPEATED = 64  # times that one update may repeat the training images


def train_run(config: Config) -> dict[str, Any] | None:
    """Trains the run that `config` describes, or continues it from its newest checkpoint.

    Args:
        config: The run. Its folder is `config.workdir`, by default `runs/NAME-BACKEND-HASH`.

    Returns:
        The report on the held-out images, which is also in `report.json` in the run's folder. If
        several processes train together, None in every process but the first.

    Raises:
        ValueError: The configuration does not fit the data, the devices or the run's folder.
        OSError: The data set or the weights cannot be read, or the folder cannot be written.
        FloatingPointError: A loss is not finite.
        SystemExit: With code 143 after SIGTERM, or 130 after Ctrl-C, once a checkpoint is written.

    Example:
        ```python
        model = ModelConfig("Ti/16", image_size=64)
        config = Config(dataset="folder:photos", epochs=20, batch=64, model=model)
        report = experiments.train_run(config)
        print(f"{report['accuracy']:.1%} of {report['images']} held-out images")
        ```
    """
    _check_backend()
    machine.prepare()
    keras.utils.clear_session()
    keras.utils.set_random_seed(config.seed)
    with contextlib.ExitStack() as held:  # keeps the folder reserved
        with distribution.open(config) as topology:
            with topology.chief_first():  # a published file is downloaded once
                config = run_model.complete_model(config)
            config, dataset, train_split = run_model.open_data(config)
            _check_batch(config, len(train_split), topology)
            config = run_model.pin_weights(config)
            described = dataset.class_names, data.learned_task(dataset, train_split, config)
            with topology.scope():
                model, encoder = run_model.build_compiled(config, *described)
            with topology.chief_first():
                if topology.is_chief:
                    held.enter_context(runs.claim(config))
                run = runs.open_run(config)
                backends.use(run.environment.get("kernels", {}))
                data.check_unchanged(dataset, run.folder)
                run_model.check_teacher(config.distill, run.folder)

            size, numerics = encoder.input_shape[1:3], encoder.preprocessing
            feed = data.Feed(dataset, config, size, numerics, topology.shard, described[1])
            few_shot = _few_shot(config, encoder, feed)
            if topology.is_chief:
                _announce(run, encoder if config.distill.teacher else model)
                lines = data.describe_splits(dataset, feed.train, feed.test, feed.dev)
                print(visible("\n".join(lines)))
            with dataset.unreadable.reading():
                if config.cache_features:
                    rows = train_head(model, feed, run)
                else:
                    validation = feed.validation(pad=topology.devices > 1)
                    rows = train(model, run, feed.training, validation, topology, few_shot)
            model = topology.local(model, lambda: run_model.build_compiled(config, *described)[0])
        if not topology.is_chief:
            return None
        return _finish(model, run, rows, described, feed, few_shot, dataset.unreadable)


def _check_backend():
    if (name := extras.backend_name()) in extras.SERVING:
        raise ValueError(
            f"KERAS_BACKEND={name} predicts, embeds and evaluates, but does not train. Train on "
            "jax, torch or tensorflow; trained runs open on every backend"
        )


def _check_batch(config, images, topology):
    """Prints a note if a batch repeats training images; refuses an absurd number of copies."""
    if config.batch > MOST_REPEATED * images:
        raise ValueError(
            f"`batch` must be at most {MOST_REPEATED} times the number of training images. "
            f"Received: batch={config.batch} for {images} images. Give a smaller --batch"
        )
    if config.batch > images and topology.is_chief:
        print(
            f"batch: {config.batch:,} images per update, more than the {images:,} to train on, so "
            f"an update repeats some. A smaller --batch, such as {min(32, images)}, repeats none"
        )


def _announce(run, model):
    """Prints the model to train, and the numbers of parameters and updates."""
    config = run.config
    count = lambda variables: sum(math.prod(variable.shape) for variable in variables)
    total, trained = count(model.weights), count(model.trainable_variables)
    part = "" if trained == total else f" ({trained:,} trained, {trained / total:.2%})"
    size = f"{model.count_params():,} parameters{part}"
    updates = f"{config.total_steps} updates of {config.batch} images"
    print(f"{run.folder}: {config.model.summary()}, {size}, {updates}")


def _few_shot(config, encoder, feed):
    """Returns the callback of `config.fewshot_every` in a list, or an empty list."""
    if not config.fewshot_every:
        return []
    if not feed.num_classes:
        raise ValueError(
            "Few-shot evaluations need classes, so `fewshot_every` must be 0 for pictures without "
            f"labels. Received: fewshot_every={config.fewshot_every}, dataset={config.dataset!r}"
        )
    options = {"every": config.fewshot_every, "encoder": encoder, **feed.eval_options}
    return [evaluation.FewShotCallback(feed.train, feed.held_out(), feed.num_classes, **options)]


def _finish(model, run, rows, described, feed, few_shot, unreadable):
    """Writes the model (the encoder or student; adapters merged), the curves and the report."""
    config, batch = run.config, run.config.batch_eval
    model = run_model.trained_part(model, config, *described)
    _save(model, run)
    if rows:
        figures.curves(rows, run.folder / "curves.png")
    report: dict[str, Any] = {}
    if config.learns_labels:
        is_judged = feed.dev is feed.test  # by the pictures that tune the model
        if config.data.dev_percent:
            run_model.fit_to_development(model, feed.dev, config)
            _save(model, run)
        predictor, tiles = evaluation.make_predictor(model), evaluation.TileOptions(batch=batch)
        report = evaluation.evaluate(predictor, feed.test, described[0], batch=batch, tiles=tiles)
        chose = {"weights": config.patience, "temperature": model.task.temperature}
        chose["thresholds"] = model.task.thresholds
        chosen = [name for name, value in chose.items() if value is not None]
        if chosen and is_judged:
            report["images_chose"] = " and ".join(chosen)
    elif few_shot:
        report = few_shot[0].gain(run_model.initial_model(config, *described), model)
    write_text(run.folder / "report.json", json.dumps(report, indent=1))
    print(evaluation.headline(report))
    if unreadable.names:
        print(unreadable.report())
    rest = shlex.quote(str(run.folder))
    commands = [command_line.spelled(f"vit-keras {name} {rest}") for name in ("evaluate", "export")]
    print(f"next: {' ; '.join(commands)}")
    return report


def _save(model, run):
    """Writes a run's model; adapters go into a separate file and are merged."""
    if run.config.lora.rank:
        file = run.folder / "adapters.safetensors"
        weights.save_adapters(model, file, base=run.config.model.weights)
        model = models.merge_lora(model)
    weights.save_model(model, run.model_file)


FEATURES = "features"
SPLITS = ("train", "test")


def train_head(model: keras.Model, feed: "data.Feed", run: Run) -> list[dict[str, float]]:
    """Trains the unfrozen layers of a compiled model on stored features, as `train` does.

    The features of the training and held-out pictures are stored in the run's folder, and a resumed
    run reads them from there. Afterward, `model` has the weights and the optimizer's state of the
    trained layers.

    Args:
        model: The model, compiled by `compile_model` with `run.config`.
        feed: The pictures of the run.
        run: The run.

    Returns:
        The rows of `metrics.json`.

    Raises:
        ValueError: The model has no frozen layers before the trained ones, or the features in the
            run's folder are damaged or belong to other weights.
        FloatingPointError: A feature is not finite.

    Example:
        ```python
        rows = train_head(model, data.Feed(dataset, config, size, preprocessing), open_run(config))
        ```
    """
    backbone, head = models.split_frozen(model)
    train_features, test_features = _features(backbone, feed, run)
    config, accumulated = run.config, run.config.optimizer.accumulation_steps
    compile_frozen(head, config)
    part, last = config.batch // accumulated, config.total_steps * accumulated
    options = {"batch": part, "seed": config.seed, "stop": last, **feed.targets}
    batches = lambda start: data.feature_batches(train_features, start=start, **options)
    held_out = data.feature_batches(test_features, batch=config.batch_eval, **feed.targets)
    rows = train(head, run, batches, held_out)
    for layer in head.layers:
        if layer.weights:
            model.get_layer(layer.name).set_weights(layer.get_weights())
    for variable, trained in zip(model.optimizer.variables, head.optimizer.variables):
        variable.assign(trained)
    return rows


def _features(backbone, feed, run):
    """Returns the folders of the features, computed now unless the run's folder has them."""
    folder, value = run.folder / FEATURES, lambda weight: keras.ops.convert_to_numpy(weight.value)
    of_weights = digest((weight.path, value(weight)) for weight in backbone.weights)
    source = {"weights": of_weights, "data": sha256(run.folder / "dataset.json")}
    recover(run.folder)
    if not folder.exists():
        _compute(folder, source, backbone, feed)
    recorded = read_json(folder / "meta.json", dict[str, str], runs.RESTORE)
    if changed := sorted({name for name, _ in recorded.items() ^ _checksums(folder, source)}):
        raise ValueError(
            f"The features in {str(folder)!r} are damaged or belong to other weights or data: the "
            f"checksum of {', '.join(changed)} differs. {runs.RESTORE}"
        )
    return [folder / split for split in SPLITS]


def _compute(folder, source, backbone, feed):
    splits, began = dict(zip(SPLITS, (feed.train, feed.dev))), time.perf_counter()
    with replacing_folder(folder) as new:
        for name, split in splits.items():
            (place := new / name).mkdir()
            batches = data.eval_batches(split, **feed.eval_options)
            data.write_features(place, backbone.predict_on_batch, batches, count=len(split))
        (new / "meta.json").write_text(json.dumps(dict(_checksums(new, source)), indent=1))
    size = sum(file.stat().st_size for file in folder.glob("*/*.npy")) / 1e6
    pictures, seconds = sum(map(len, splits.values())), time.perf_counter() - began
    print(f"{folder}: features of {pictures:,} pictures, {size:.1f} MB, in {seconds:.1f} s")


def _checksums(folder, source):
    """Returns the names and hashes of the features' sources and files."""
    files = sorted(folder.glob("*/*.npy"))
    hashes = {file.relative_to(folder).as_posix(): sha256(file) for file in files}
    return (source | hashes).items()
