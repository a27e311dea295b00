"""The ResNet stem of timm's hybrids."""

from vit_keras import variants
from vit_keras.weights.architectures import count_units
from vit_keras.weights.architectures.paths import stem_paths
from vit_keras.weights.formats.base import Link
from vit_keras.weights.formats.torch_layouts import kernel, norm

BACKBONE = "patch_embed.backbone"


def stem_links(resnet_layers: tuple[int, ...]) -> list[Link]:
    """Links the ResNet of a hybrid; a root without stages lies one level higher."""
    root = f"{BACKBONE}.stem" if resnet_layers else BACKBONE
    result = [kernel(f"{root}.conv", "conv_root"), *norm(f"{root}.norm", "gn_root")]
    for path in stem_paths(resnet_layers)[3:]:
        block, unit, part, leaf = path.split("/")
        if leaf == "kernel":
            old = f"{BACKBONE}.stages.{int(block[5:]) - 1}.blocks.{int(unit[4:]) - 1}"
            ours, number = f"{block}/{unit}", part[4:]
            projects = number == "_proj"
            theirs = ("downsample.conv", "downsample.norm") if projects else (part, f"norm{number}")
            result.append(kernel(f"{old}.{theirs[0]}", f"{ours}/{part}"))
            result += norm(f"{old}.{theirs[1]}", f"{ours}/gn{number}")
    return result


def stem_sizes(shapes: dict) -> dict:
    """Returns the arguments of `HybridViT` that the shapes of a stem say; empty without a stem."""
    for root, pattern in (
        (f"{BACKBONE}.conv.weight", None),
        (f"{BACKBONE}.stem.conv.weight", r"^patch_embed\.backbone\.stages\.(\d+)\.blocks\.(\d+)\."),
    ):
        if root in shapes:
            width, channels, *_ = shapes[root]
            return {
                "resnet_layers": count_units(shapes, pattern) if pattern else (),
                "resnet_width": width / variants.ROOT_WIDTH,
                "channels": channels,
            }
    return {}
