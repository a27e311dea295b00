"""A folder with the files that the pages name, all of them tiny, and tiny models of every name."""

import dataclasses
import pathlib
import shutil

import numpy as np
from PIL import Image

import vit_keras
from examples.shapes_with_boxes import make_folder
from tests.data.deep_pictures import tiff
from tests.helpers import randomize
from vit_keras import applications, config, models, variants, weights
from vit_keras.support.tasks import Task

WIDTH = {"hidden_size": 192, "num_heads": 3}  # which a published file has
# What lies under each name: a variant, its format, and what the constructor is told.
FILES = {
    "vit-base-patch16-224": ("B/16", "huggingface", {"num_classes": 3}),
    "google/vit-base-patch16-224": ("B/16", "huggingface", {"num_classes": 3}),
    "ViT-B_16.npz": ("B/16", "google", {"num_classes": 3}),
    "ViT-S_16.npz": ("S/16", "google", {"num_classes": 3}),
    "vit.npz": ("S/16", "google", {"num_classes": 2}),
    "vit_small.safetensors": ("S/16", "timm", {"num_classes": 3}),
    "vit.weights.h5": ("S/16", "keras_hub", {"num_classes": 3}),
    "flexivit_s_i1k.npz": ("FlexiViT-S/16", "big_vision", {}),
    "beit-base-patch16-224": ("BEiT-B/16", "huggingface", {}),
    "deit-tiny-distilled-patch16-224": ("DeiT-Ti/16-distilled", "huggingface", {}),
    "dino_deitsmall16_pretrain.pth": ("DINO-S/16", "dino", {}),
    "dinov2-small": ("DINOv2-S/14", "huggingface", {"image_size": 224}),
    "dinov3-vits16-pretrain-lvd1689m": ("DINOv3-S/16", "huggingface", {}),
    "eva02_small_patch14_336.mim_in22k_ft_in1k": ("EVA02-S/14", "timm", {"num_classes": 3}),
    "ijepa_vith14_1k": ("IJEPA-H/14", "huggingface", {}),
    "vit-mae-base": ("MAE-B/16", "huggingface", {}),
    "PE-Core-B16-224.pt": ("PE-Core-B/16", "perception_encoder", WIDTH),
    "vit_base_patch16_reg4_gap_256": ("ViT-reg4-B/16", "timm", {}),
    "clip-vit-base-patch32": ("CLIP-B/32", "huggingface", {}),
    "siglip2-base-patch16-224": ("SigLIP2-B/16", "huggingface", {}),
    "yolos-tiny": ("YOLOS-Ti/16", "huggingface", {"image_size": (64, 96)}),
    "shapes.keras": ("S/32", None, {"num_classes": 3, "image_size": 32}),
    "model.keras": ("S/32", None, {"num_classes": 2, "image_size": 64}),
}
SUFFIXES = (".keras", ".npz", ".pt", ".pth", ".safetensors", ".h5")
CLASSES = ("cat", "dog")


def shrink_variants() -> None:
    """Makes the models of all names tiny: four channels a head, and at most three blocks."""
    for name in applications.__all__:  # whose docstrings say the real sizes
        getattr(applications, name)
    for name, row in variants.VARIANTS.items():
        if isinstance(row, variants.Variant):
            width = 4 * row.num_heads
            sizes = {"hidden_size": width, "mlp_dim": 2 * width}
            sizes |= {"num_layers": min(row.num_layers, 3)}
            variants.VARIANTS[name] = dataclasses.replace(row, **sizes)


def load_no_published_files() -> None:
    """Models of published names are built as their files say, and keep random weights."""
    load, resolve = weights.load, weights.resolve

    def resolve_here(variant, name, *rest, **options):
        if pathlib.Path(str(name)).exists():
            return resolve(variant, name, *rest, **options)
        return weights.lookup(variant, name)

    def load_here(model, source, *rest, **options):
        if isinstance(source, str | pathlib.Path):
            return load(model, source, *rest, **options)
        return model

    weights.resolve, weights.load = resolve_here, load_here


def name_classes() -> None:
    """ImageNet's classes by their numbers, which Keras would download by name."""
    from keras.src.applications import imagenet_utils

    imagenet_utils.CLASS_INDEX = {str(i): [f"n{i:08}", f"class {i}"] for i in range(1000)}


def write_pictures(folder: pathlib.Path, rng: np.random.Generator) -> None:
    """Two classes that differ in brightness, and the pictures that pages name."""
    places = [
        *(f"photos/train/{name}/{i:02}.jpg" for name in CLASSES for i in range(12)),
        *(f"photos/test/{name}/{i:02}.jpg" for name in CLASSES for i in range(3)),
        *("cat.jpg", "cat.png", "dog.jpg", "street.jpg", "photographs/flower.jpg", "new/a.jpg"),
        *("holidays/b/c.png", "more/d/e.jpg"),
        *(f"fields/train/{name}/{i}.tif" for name in CLASSES for i in range(12)),
    ]
    for place in places:
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".tif":
            bands = rng.integers(0, 60_000, (20, 24, 6)).astype("uint16")
            path.write_bytes(tiff(bands, photometric="minisblack", planarconfig="contig"))
        else:
            low = 128 if "dog" in place else 0
            Image.fromarray(rng.integers(low, low + 128, (40, 48, 3), dtype="uint8")).save(path)
    for copy in ("pets", "imagenet", "others", "labeled"):
        shutil.copytree(folder / "photos", folder / copy)
    make_folder(folder / "objects", ["circle", "cross"], 8, 4, seed=0)


def write_models(folder: pathlib.Path, rng: np.random.Generator) -> None:
    """Random models under the names of FILES."""
    for name, (variant, file_format, arguments) in FILES.items():
        if not isinstance(variants.get(variant), variants.FamilyVariant):
            arguments = {"image_size": 224, **arguments}
        model = randomize(models.from_variant(variant, **arguments), rng, scale=0.05)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        plain = path if path.suffix in SUFFIXES else folder / "saved"  # folders have dots
        weights.save(model, plain, format=file_format)
        plain.rename(path)


def write_training_checkpoint(folder: pathlib.Path, rng: np.random.Generator) -> None:
    """The raw and the averaged weights in one file, as timm's training script saves them."""
    import torch

    sets = {}
    for name in ("state_dict", "state_dict_ema"):
        model = randomize(models.from_variant("S/16", image_size=224, num_classes=3), rng)
        weights.save(model, folder / "raw.pth", format="timm")
        sets[name] = torch.load(folder / "raw.pth", weights_only=True)
    (folder / "raw.pth").unlink()
    torch.save({"epoch": 9, "arch": "vit_small_patch16_224", **sets}, folder / "model_best.pth.tar")


def write_run(folder: pathlib.Path) -> None:
    """A run of two updates on the pictures, under all names that pages give a run."""
    from vit_keras import experiments

    run = config.Config(
        dataset="folder:photos",
        total_steps=2,
        batch=8,
        workdir="runs/mine",
        kernels="default",
        model=config.ModelConfig("Ti/16", image_size=64),
        augment=config.AugmentConfig(crop="resize"),
    )
    experiments.train_run(run)
    model = vit_keras.open("runs/mine")
    model.task = Task(quantiles=((0.9, 0.3),), floors=((0.05, 0.6),))  # as of a development split
    weights.save_model(model, "runs/mine/model.keras")
    for name in ("digits", "photos", "a", "b", "c", "teacher"):
        shutil.copytree(folder / "runs" / "mine", folder / "runs" / name)


def make(folder: pathlib.Path) -> None:
    """Fills the present folder."""
    rng = np.random.default_rng(0)
    shrink_variants()
    load_no_published_files()
    name_classes()
    write_pictures(folder, rng)
    write_models(folder, rng)
    write_training_checkpoint(folder, rng)
    write_run(folder)
