"""Other projects' answers for photographs: each reads a file, prepares pictures, and predicts."""

import importlib
import json
import pathlib

import numpy as np
from PIL import Image

from vit_keras import data, evaluation, runtimes
from vit_keras.support.preprocessing import Preprocessing, with_tuples

PIL_METHODS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def ours(source, paths) -> np.ndarray:
    """Probabilities `(N, K)` by this package, of a model or of what `open_predictor` opens."""
    if isinstance(source, (str, pathlib.Path)):
        source, _ = evaluation.open_predictor(source)
    else:
        source = evaluation.make_predictor(source)
    rows = evaluation.predict_files(source, paths, top=source.num_classes)
    return np.array([_in_order(row.classes) for row in rows])


def evaluated(model, paths) -> np.ndarray:
    """Probabilities of a model behind the resize of `data.eval_batches`."""
    return _resized_by(model, paths, data.resize)


def whole_levels(model, paths) -> np.ndarray:
    """Probabilities of a model for resized pictures of 8 bits."""
    return _resized_by(model, paths, lambda *request: data.to_uint8(data.resize(*request)))


def _resized_by(model, paths, resize):
    pixels, (height, width, channels) = model.preprocessing, model.input_shape[1:]
    pictures = [data.read_image(path, channels) for path in paths]
    images = np.stack([resize(picture, (height, width), pixels) for picture in pictures])
    predictor = evaluation.make_predictor(model)
    inputs = pixels.normalize(images.astype("float32"))
    return predictor.as_probabilities(np.asarray(predictor.run(inputs)))


def _in_order(named):
    """Probabilities in the order of their names, of (name, probability) pairs."""
    return [probability for _, probability in sorted(named)]


def _peer(name):
    importlib.import_module("benchmarks.torchvision_operators")
    return importlib.import_module(name)


def transformers(folder, paths) -> np.ndarray:
    """Probabilities of transformers' pipeline for image classification."""
    pipeline = _peer("transformers").pipeline("image-classification", model=str(folder))
    answers = pipeline([str(path) for path in paths], top_k=1000, function_to_apply="softmax")
    return np.array([_in_order((a["label"], a["score"]) for a in rows) for rows in answers])


def transformers_copy(folder, target) -> None:
    """Writes a folder anew by transformers."""
    peer = _peer("transformers")
    peer.AutoModelForImageClassification.from_pretrained(folder).save_pretrained(target)
    peer.AutoImageProcessor.from_pretrained(folder).save_pretrained(target)


def _timm_model(folder):
    return _peer("timm").create_model(f"local-dir:{folder}", pretrained=True).eval()


def timm(folder, paths) -> np.ndarray:
    """Probabilities of timm's model behind timm's own transform."""
    model = _timm_model(folder)
    data = importlib.import_module("timm.data")
    transform = data.create_transform(**data.resolve_model_data_config(model))
    return _torch_answers(model, transform, paths)


def timm_copy(folder, target) -> None:
    """Writes a folder anew by timm."""
    model = _timm_model(folder)
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    save = importlib.import_module("timm.models").save_for_hf
    save(model, target, model_args=config["model_args"], safe_serialization=True)


def _torchvision_model(file):
    import torch

    tensors = torch.load(file)
    layers = len({name.split(".")[2] for name in tensors if "_layer_" in name})
    width, _, patch, _ = tensors["conv_proj.weight"].shape
    model = _peer("torchvision").models.VisionTransformer(
        224,
        patch,
        layers,
        3,
        width,
        tensors["encoder.layers.encoder_layer_0.mlp.0.weight"].shape[0],
        num_classes=tensors["heads.head.weight"].shape[0],
    )
    model.load_state_dict(tensors)
    return model.eval()


def torchvision(file, paths) -> np.ndarray:
    """Probabilities of torchvision's model behind the transform of its published weights."""
    model = _torchvision_model(file)
    published = importlib.import_module("torchvision.models").ViT_B_16_Weights.IMAGENET1K_V1
    return _torch_answers(model, published.transforms(), paths)


def torchvision_copy(file, target) -> None:
    """Writes a file anew by torchvision's model."""
    import torch

    torch.save(_torchvision_model(file).state_dict(), target)


def _torch_answers(model, transform, paths):
    import torch

    images = torch.stack([transform(Image.open(path).convert("RGB")) for path in paths])
    with torch.no_grad():
        return model(images).softmax(-1).numpy()


def prepared(picture: Image.Image, manifest: dict) -> Image.Image:
    """A picture of a file's size, as its `manifest.json` says: by Pillow, if Pillow can do it."""
    pixels, (height, width, _) = manifest["input"]["preprocessing"], manifest["input"]["shape"]
    method, fraction = PIL_METHODS[pixels["interpolation"]], pixels["crop_fraction"]
    if not pixels["antialias"]:
        resized = data.resize(
            np.asarray(picture), (height, width), Preprocessing(**with_tuples(pixels))
        )
        return Image.fromarray(data.to_uint8(resized))
    if fraction is None:
        return picture.resize((width, height), method)
    side = int(height / fraction + 1e-6)  # of a square model
    size = [side * edge // min(picture.size) for edge in picture.size]
    left, top = (round((edge - height) / 2) for edge in size)
    return picture.resize(size, method).crop((left, top, left + width, top + height))


def exported(file, paths) -> np.ndarray:
    """Probabilities of an exported file in its own runtime, for pictures of its size."""
    manifest = json.loads((pathlib.Path(file).parent / "manifest.json").read_text())
    pictures = [prepared(Image.open(path).convert("RGB"), manifest) for path in paths]
    run = runtimes.open(file)
    return np.concatenate([run(np.asarray(picture)[None]) for picture in pictures])


def mediapipe(file, paths, resized: bool = True) -> np.ndarray:
    """Probabilities of MediaPipe's ImageClassifier, for pictures of its size or whole ones."""
    peer = importlib.import_module("mediapipe")
    manifest = json.loads((pathlib.Path(file).parent / "manifest.json").read_text())
    vision, base = peer.tasks.vision, peer.tasks.BaseOptions(model_asset_path=str(file))
    options = vision.ImageClassifierOptions(base_options=base)
    answers = []
    with vision.ImageClassifier.create_from_options(options) as classifier:
        for path in paths:
            picture = Image.open(path).convert("RGB")
            picture = prepared(picture, manifest) if resized else picture
            image = peer.Image(peer.ImageFormat.SRGB, np.ascontiguousarray(picture))
            rows = classifier.classify(image).classifications[0].categories
            answers.append(_in_order((row.category_name, row.score) for row in rows))
    return np.array(answers)
