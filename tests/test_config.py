"""A run's configuration from YAML and the command line."""

import shlex

import pytest

from tests.helpers import ROOT, shapes_only
from vit_keras.config import (
    Config,
    ModelConfig,
    UsageError,
    dump_config,
    explain_field,
    explain_fields,
    find_recipe,
    parse_config,
    read_config,
)
from vit_keras.config.parsing import FIELDS
from vit_keras.models import from_model_config

pytestmark = pytest.mark.once
SMALL = "{patch_size: 4, hidden_size: 8, num_layers: 1, num_heads: 2, mlp_dim: 8}"


@pytest.fixture
def parse(tmp_path):
    """Parses words, in which NAME.yaml stands for the file with the text NAME."""

    def read(words, default="digits", **files):
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        words = [str(tmp_path / w) if w[1:] == ".yaml" else w for w in shlex.split(words)]
        return parse_config(words, default=default)

    return read


def test_arguments_stand_over_the_file_and_the_file_over_defaults(parse, tmp_path):
    text = "seed: 3\ntotal_steps: 7\nmodel: {variant: Ti/16, image_size: [32, 48]}\n"
    config = parse("--config a.yaml --seed 4 --optimizer.learning_rate 1e-2", a=text)
    assert (config.seed, config.total_steps, config.batch) == (4, 7, Config().batch)
    assert config.optimizer.learning_rate == 0.01
    assert config.model.arguments()["image_size"] == (32, 48)
    with shapes_only():
        model = from_model_config(config.model, num_classes=3)
    assert model.get_layer("embedding").hidden_size == 192 and model.output_shape == (None, 3)
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert read_config(tmp_path / "config.yaml") == config


def test_every_field_is_explained():
    text = explain_fields()
    for name in FIELDS:
        explained, _ = explain_field(name)
        shown = text[text.index(f"--{name} VALUE") :]
        assert " ".join(explained.split()[:3]) in " ".join(shown.split()), name


ONE_VALUE = [
    ("--optimizer '{learning_rte: 1}'", "learning_rte'. Did you mean optimizer.learning_rate"),
    ("--lr 1", "Did you mean --optimizer.learning_rate[?]"),
    ("--optimizer.learning_rate fast", "optimizer.learning_rate` must be a number"),
    ("--model.variant vit-b16", "Did you mean 'B/16'[?]"),
    ("--model.image_size 0", "`model.image_size` must be at least 1, or null. Received: 0"),
    ("--seed 010", "`seed` must be a whole number. Received: 010"),
    ("--batch 1:30", "`batch` must be a whole number. Received: 1:30"),
    ("--sweep maybe", "`sweep` must be true or false. Received: maybe"),
    ("--grid.seeds '[1, x]'", r"be a list in brackets of whole numbers. Received: \[1, x\]"),
    ("--data.fold 3", "a list in brackets of 2 whole numbers or null. Received: 3"),
    ("--task claszes", "numbers, masks or boxes. Received: claszes. Did you mean classes"),
    ("--lora.layers '[]'", "`lora.layers` must be names of dense layers"),
    ("--distill.teacher=", "`distill.teacher` must be a model, or null. Received: $"),
    ("--model B/16", "Give a field of `model`, such as model.variant. Received: model=B"),
    ("--model.hidden_size 8 --dataset digits", r"Give `model\.variant`, or all sizes\. Missing"),
]
DINO = "--pretext.objective dino --pretext.dino.local_size 16"
MASKED = "--pretext.objective masked_patch"
SOFT, HARD, FEATURES = (
    f"--distill '{{teacher: t, kind: {k}}}'" for k in ("soft", "hard", "features")
)
CACHED = """--cache_features --optimizer.freeze '["[!h]*"]'"""
TOGETHER = [
    ("--config labels --sweep", "`calibrate` and `sweep`: a sweep's final .* to calibrate on"),
    ("--epochs=3 --total_steps=7", "`epochs` and `total_steps`: give only one of them.*3.*7"),
    ("--batch 3 --optimizer.accumulation_steps 2", "the second must divide the first.*3 and 2"),
    (f"{MASKED} --pretext.decoder_hidden_size 30", "of 4 and of the second. Received: 30 and 16"),
    (f"{MASKED} --loss sigmoid", "`loss` must be null with .*no classifier. Received: loss=sigm"),
    (f"{MASKED} --model.variant R50+B/16", r"plain Vision Transformer.*: R50\+B"),
    (f"{MASKED} --model.classifier map", "`model.classifier` must be token or gap"),
    (f"{MASKED} --model.image_size 16", "at least two patches. Received: .*patches of 16x16"),
    (
        f"{MASKED} --pretext.target colors_4x4 --model.variant DINOv2-S/14 --model.patch_size 14",
        "needs patches whose sides are multiples of 4. Received: patches of 14x14",
    ),
    (f"{DINO} --model.position_embedding rope2d", "one of learned, .*Received: rope2d"),
    (
        f"{DINO} --model.patch_size '[8, 32]' --model.variant S/16",
        r"local_size`, which is 16, to be a multiple of the patch .* patches of 8x32",
    ),
    (f"{DINO} --optimizer.ema_decay 0.9", "`optimizer.ema_decay` must be null.*views and averages"),
    ("--distill.kind hard", "`distill.kind` must be soft with no `distill.teacher`.*kind=hard"),
    (f"{HARD} --distill.temperature 3", "`distill.temperature` must be 2.0 with .*hard.*=3"),
    (f"{SOFT} --lora.rank 4 --model.weights a", "`lora.rank` must be null with `distill.teacher`"),
    (
        f"{SOFT} --loss sigmoid",
        "task classes and loss softmax.*Received: t and soft and auto and sigm",
    ),
    (f"{FEATURES} --sweep", "`sweep` must be false with `distill.kind` features"),
    (
        f"{FEATURES} --distill.patches true --model.patch_keep_rate 0.5",
        "`model.patch_keep_rate` must be 1.0 with `distill.patches`.*patch_keep_rate=0.5",
    ),
    ("--task masks --model.patch_keep_rate 0.5", "`model.patch_keep_rate` must be 1.0 with `task`"),
    ("--task labels --loss softmax", "`loss` must be sigmoid or focal with `task` labels"),
    (
        "--task classes --loss sigmoid --balance weights",
        "`task` and `balance`: class weights",
    ),
    (
        f"{CACHED} --model.dropout_rate 0.1 --augment.crop bit",
        "`model.dropout_rate` must be 0.0 and `augment.crop` must be resize.*Received: mod",
    ),
    ("--cache_features", "optimizer.freeze`: the first needs frozen layers"),
    ("--lora.rank 2", "`lora.rank` and `model.weights`: the first needs .*Received: 2 and None"),
    (
        "--model.weights a --model.labels b --lora.rank 2 --task classes",
        "`lora.rank` must be null with `model.labels`",
    ),
]


@pytest.mark.parametrize(("words", "message"), [*ONE_VALUE, *TOGETHER])
def test_faults_are_named(parse, words, message):
    with pytest.raises(UsageError, match=message):
        parse(words, default="" if (words, message) in TOGETHER else "digits")


def test_a_recipe_is_found_by_name_or_path():
    file = ROOT / "configs" / "finetune" / "pets.yaml"
    for name in ("finetune/pets", "finetune/pets.yaml", "configs/finetune/pets.yaml", file):
        assert find_recipe(name).samefile(file)


def test_a_recipe_applies_only_if_it_or_nothing_is_named(parse):
    plain = parse("--dataset folder:photos --model.variant Ti/16")
    assert plain.model == ModelConfig("Ti/16") and plain.batch == 512
    digits = parse("--seed 1")
    assert (digits.dataset, digits.model.hidden_size, digits.model.channels) == ("digits", 64, 1)
    other = parse("--config a.yaml", a="seed: 2")
    assert other.model == ModelConfig("B/16") and other.seed == 2


def test_a_variant_and_sizes_replace_each_other_by_their_order(parse):
    small, both = f"model: {SMALL[:-1]}, dropout_rate: 0.1}}", "--config a.yaml --config b.yaml"
    model = parse("--model.variant S/16 --config a.yaml", a=small).model
    assert model == ModelConfig("S/16", dropout_rate=0.1)
    s16 = "model: {variant: S/16}"
    assert parse(both, a=small, b=s16).model.variant == "S/16"
    for model in (
        parse(both, a=small, b="{}").model,
        parse(f"--config a.yaml --model '{SMALL}'", a=s16).model,
    ):
        assert model.variant is None and model.hidden_size == 8
    for variant, expected in (
        ("DINOv2-S/14-reg", ("exact", 518, "token")),
        ("CLIP-B/32", ("quick", 224, "token")),
        ("B/16", ("tanh", 224, "token")),
    ):
        model = ModelConfig(variant)
        assert (model.gelu, model.image_size, model.classifier) == expected
    model = parse("--config a.yaml --model.num_layers 3", a=s16).model
    assert model.summary() == "S/16 with num_layers=3, 224x224x3 images"


def test_weights_replace_the_architecture_of_files_before_them(parse, tmp_path):
    recipe = "model: {variant: S/16, image_size: 384, classifier: gap, dropout_rate: 0.2}"
    given = f"--model.weights {tmp_path} --config a.yaml"
    model = parse(given, a=recipe).model
    assert not model.is_complete and model.dropout_rate == 0.2
    assert {model.variant, model.image_size, model.channels, model.classifier} == {None}
    assert parse(f"{given} --model.image_size 96", a=recipe).model.image_size == 96
    named = parse("--config a.yaml --model.weights imagenet", a=recipe).model
    assert (named.variant, named.image_size) == ("S/16", None)  # a name belongs to a variant
    both = "model: {variant: S/16, image_size: 384, weights: imagenet}"
    model = parse("--config b.yaml", b=both).model
    assert (model.variant, model.image_size) == ("S/16", 384)


def test_the_later_of_two_ways_to_say_it_counts(parse):
    for words, text, expected in (
        ("--epochs 3", "total_steps: 7", (3, None)),
        ("--total_steps 7", "epochs: 3", (None, 7)),
    ):
        config = parse(f"--config a.yaml {words}", a=text)
        assert (config.epochs, config.total_steps) == expected
    warmup = {"a": "optimizer: {warmup_fraction: 0.1}", "b": "optimizer: {warmup_steps: 5}"}
    for files, expected in (("ab", (5, None)), ("ba", (0, 0.1))):
        optimizer = parse("--config {}.yaml --config {}.yaml".format(*files), **warmup).optimizer
        assert (optimizer.warmup_steps, optimizer.warmup_fraction) == expected


def test_epochs_are_counted_in_updates(parse):
    config = parse("--dataset=x --epochs=2.5 --batch=8 --steps_per_execution=2")
    counted = config.count_steps(images=100)  # 12.5 updates an epoch, in pairs
    assert (counted.epochs, counted.total_steps) == (None, 32)
    assert (counted.eval_every, counted.checkpoint_every) == (12, 12)
    assert parse("--dataset=x --epochs=1").count_steps(10).total_steps == 1
    given = parse("--dataset=x --epochs=1 --eval_every=3").count_steps(5120)
    assert (given.total_steps, given.eval_every, given.checkpoint_every) == (10, 3, 10)
    assert given.optimizer.warmup(10) == 0
    assert parse("--optimizer.warmup_fraction=0.25").optimizer.warmup(10) == 2
