"""A training run from its configuration to its report; every command and study trains by it."""

import contextlib
import dataclasses
import json
import math
import os
import shlex
from typing import Any

import keras

from vit_keras import _command_line, data, evaluation, figures, machine, models, runs, weights
from vit_keras.config import Config
from vit_keras.config.model import both_sides
from vit_keras.experiments.cached_features import train_head
from vit_keras.experiments.final_outputs import fit_to_development
from vit_keras.experiments.pinned_weights import pin_weights
from vit_keras.experiments.run_model import build_compiled, trained_part
from vit_keras.experiments.starting_point import complete_model, initial_model
from vit_keras.experiments.teacher import check_teacher
from vit_keras.files import write_text
from vit_keras.layers import backends
from vit_keras.training import distribution
from vit_keras.training.loop import train

MOST_REPEATED = 64  # times that an update may repeat the training images


def train_run(config: Config) -> dict[str, Any] | None:
    """Trains the run that `config` describes, or continues it from its newest checkpoint.

    Args:
        config: The run. Its folder is `config.workdir`, by default `runs/NAME-BACKEND-HASH`.

    Returns:
        The report on the held-out images, as `report.json` in the run's folder holds it. None in
        every process but the first when several processes train together.

    Raises:
        ValueError: The configuration does not fit the data, the devices or the run's folder.
        OSError: The data set or the weights cannot be read, or the folder cannot be written.
        FloatingPointError: The loss is not finite, and `config.on_nan` stops the run.
        SystemExit: With code 143 after SIGTERM, or 130 after Ctrl-C, and a last checkpoint.

    Example:
        ```python
        model = ModelConfig("Ti/16", image_size=64)
        config = Config(dataset="folder:photos", epochs=20, batch=64, model=model)
        report = experiments.train_run(config)
        print(f"{report['accuracy']:.1%} of {report['images']} held-out images")
        ```
    """
    with contextlib.ExitStack() as held:
        return _train_run(config, held)


def _train_run(config, held):
    """`train_run`, which keeps the run's folder in the `ExitStack` `held`."""
    machine.prepare()
    keras.utils.clear_session()
    keras.utils.set_random_seed(config.seed)
    with distribution.open(config) as topology:
        with topology.chief_first():  # a published file is downloaded once
            config = complete_model(config)
        dataset = data.load(
            config.dataset, config.model.channels, config.data, config.task, config.learns_labels
        )
        config = dataclasses.replace(config, data=data.complete_levels(config.data, dataset))
        train_split, *_ = data.train_dev_test(dataset, config.data)
        _check_batch(config, len(train_split), topology)
        config = pin_weights(config.complete_task(dataset.kind).count_steps(len(train_split)))
        described = dataset.class_names, data.learned_task(dataset, train_split, config)
        with topology.scope():
            model, encoder = build_compiled(config, *described)
        with topology.chief_first():
            if topology.is_chief:
                held.enter_context(runs.claim(config))
            run = runs.open_run(config)
            backends.use(run.kernels)
            data.check_unchanged(dataset, run.folder)
            check_teacher(config.distill, run.folder)
        dataset.unreadable.record_in(run.folder / "unreadable.txt")

        size, numerics = encoder.input_shape[1:3], encoder.preprocessing
        feed = data.Feed(dataset, config, size, numerics, topology.shard, described[1])
        few_shot = _few_shot(config, encoder, feed)
        if topology.is_chief:
            _announce(run, encoder if config.distill.is_active else model)
            print("\n".join(data.describe_splits(dataset, feed.train, feed.test, feed.dev)))
        with dataset.unreadable.reading():
            if config.cache_features:
                rows = train_head(model, feed, run)
            else:
                validation = feed.validation(pad=topology.distributed)
                rows = train(model, run, feed.training, validation, topology, few_shot)
        model = topology.local(model, lambda: build_compiled(config, *described)[0])
    if not topology.is_chief:
        return None
    with dataset.unreadable.reading():
        return _finish(model, run, rows, described, feed, few_shot, dataset.unreadable)


def _check_batch(config, images, topology):
    """Says that a batch holds more than all images, and refuses one that no run can mean."""
    height, width = both_sides(config.model.image_size)
    divisor = config.optimizer.accumulation_steps * topology.shard[1]
    size = 4 * config.batch // divisor * height * width * config.model.channels  # bytes
    system = getattr(os, "sysconf", lambda name: math.inf)  # which Windows lacks
    memory = system("SC_PAGE_SIZE") * system("SC_PHYS_PAGES")
    if config.batch > MOST_REPEATED * images or size > memory:
        raise ValueError(
            f"`batch` must be at most {MOST_REPEATED} times the training images and fit in memory. "
            f"Received: batch={config.batch} for {images} images, {size / 1e9:.3g} GB as floats. "
            "Give a smaller --batch"
        )
    if config.batch > images and topology.is_chief:
        print(
            f"batch: {config.batch:,} images an update, more than the {images:,} to train on, so "
            f"an update repeats some. A smaller --batch, such as {min(32, images)}, repeats none"
        )


def _announce(run, model):
    """Prints what is trained: the model, its parameters, and the updates."""
    config = run.config
    total, trained = (
        sum(math.prod(v.shape) for v in variables)
        for variables in (model.weights, model.trainable_variables)
    )
    part = "" if trained == total else f" ({trained:,} trained, {trained / total:.2%})"
    size = f"{model.count_params():,} parameters{part}"
    updates = f"{config.total_steps} updates of {config.batch} images"
    print(f"{run.folder}: {config.model.summary()}, {size}, {updates}")


def _few_shot(config, encoder, feed):
    """The callback of `config.fewshot_every`, in a list that is empty without one."""
    if not config.fewshot_every:
        return []
    if not feed.num_classes:
        raise ValueError(
            "Few-shot evaluations need classes, so `fewshot_every` must be 0 for pictures without "
            f"labels. Received: fewshot_every={config.fewshot_every}, dataset={config.dataset!r}"
        )
    return [
        evaluation.few_shot_callback(
            feed.train,
            feed.held_out(),
            feed.num_classes,
            every=config.fewshot_every,
            encoder=encoder,
            **feed.eval_options,
        )
    ]


def _finish(model, run, rows, described, feed, few_shot, unreadable):
    """Writes the model (the encoder or student; adapters merged), the curves and the report."""
    config = run.config
    model = trained_part(model, config, *described)
    _save(model, run)
    if rows:
        figures.curves(rows, run.folder / "curves.png")
    if config.learns_labels and config.task == "masks":
        options = evaluation.MaskOptions(batch=config.batch_eval)
        predictor = evaluation.make_predictor(model)
        report = evaluation.judge_masks(predictor, feed.test, described[0], options)
    elif config.learns_labels:
        outputs, labels = evaluation.predict(
            model, data.eval_batches(feed.dev, **feed.eval_options)
        )
        if config.data.dev_percent:
            outputs = fit_to_development(model, outputs, labels, config.calibrate)
            _save(model, run)
        if feed.dev is not feed.test:
            outputs, labels = evaluation.predict(model, feed.held_out())
        report = evaluation.report(outputs, labels, described[0], model.task)
    elif few_shot:
        report = few_shot[0].gain(initial_model(config, *described), model)
    else:
        report = {}
    judges = config.learns_labels and feed.dev is feed.test
    if judges and (chose := _chosen(config, model.task)):
        report["images_chose"] = " and ".join(chose)
    write_text(run.folder / "report.json", json.dumps(report, indent=1))
    print(evaluation.headline(report))
    if unreadable.names:
        print(unreadable.report())
    rest = shlex.quote(str(run.folder))
    commands = [
        _command_line.spelled(f"vit-keras {name} {rest}") for name in ("evaluate", "export")
    ]
    print(f"next: {' ; '.join(commands)}")
    return report


def _chosen(config, task):
    """What the images that judge a run have chosen before."""
    chose = {"weights": config.patience, "temperature": task.temperature}
    chose["thresholds"] = task.thresholds
    return [name for name, value in chose.items() if value is not None]


def _save(model, run):
    """Writes a run's model; adapters go into a file of their own and are merged."""
    if run.config.lora.is_active:
        weights.save_adapters(model, run.adapters_file, base=run.config.model.weights)
        model = models.merge_lora(model)
    weights.save_model(model, run.model_file)
