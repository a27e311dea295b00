"""Models with windows of attention have the numbers of transformers' ViTDet."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.designs import random_design
from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from tests.peers import peer
from vit_keras import exporting, inspection, models, weights
from vit_keras.models import VisionTransformer

pytestmark = pytest.mark.on("torch")  # tests/layers/test_windows.py is on every backend

SIZES = {"hidden_size": 16, "num_layers": 3, "num_heads": 2, "mlp_dim": 32, "num_classes": None}


def vitdet(image_size, window_size, global_blocks, qkv_bias):
    """transformers' model with random weights and without positions."""
    import torch

    transformers = peer("transformers")
    config = transformers.VitDetConfig(
        hidden_size=SIZES["hidden_size"],
        num_hidden_layers=SIZES["num_layers"],
        num_attention_heads=SIZES["num_heads"],
        mlp_ratio=SIZES["mlp_dim"] // SIZES["hidden_size"],
        image_size=list(image_size),
        pretrain_image_size=8,
        patch_size=4,
        qkv_bias=qkv_bias,
        window_size=window_size,
        window_block_indices=[*{*range(SIZES["num_layers"])} - {*global_blocks}],
    )
    model = transformers.VitDetModel(config).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3, generator=generator)
        model.embeddings.position_embeddings.zero_()
    return model


def take(model, theirs, path):
    """Gives a model the weights of transformers', whose names are nearly timm's."""
    state = {name: value.numpy() for name, value in theirs.state_dict().items()}
    patches, width = np.prod(models.patch_grid(model)), SIZES["hidden_size"]
    state["embeddings.position_embeddings"] = np.zeros((1, patches, width), "float32")
    for i in range(SIZES["num_layers"]):
        name = f"encoder.layer.{i}.attention.qkv.bias"
        state.setdefault(name, np.zeros(3 * width, "float32"))
    state |= {f"norm.{name}": np.ones(width, "float32") for name in ("weight", "bias")}
    for old, new in [
        ("embeddings.position_embeddings", "pos_embed"),
        ("embeddings.projection", "patch_embed.proj"),
        ("encoder.layer", "blocks"),
        ("attention.", "attn."),
    ]:
        state = {name.replace(old, new): np.ascontiguousarray(x) for name, x in state.items()}
    save_file(state, path)
    plain = VisionTransformer(model.input_shape[1:3], 4, **SIZES, classifier="gap")
    values = weights_by_path(weights.load(plain, path, "timm"))
    for variable in model.weights:
        variable.assign(values[variable.path])


@pytest.mark.parametrize(
    ("image_size", "window_size", "global_blocks", "qkv_bias"),
    [
        ((16, 24), 2, (1,), True),  # windows that divide 4 x 6 patches
        ((16, 28), 3, (2,), True),  # windows over 6 x 9 places for 4 x 7 patches
        ((12, 20), 4, (), False),  # padding without biases
    ],
)
def test_every_block_equals_vitdets(
    rng, tmp_path, image_size, window_size, global_blocks, qkv_bias
):
    import torch

    theirs = vitdet(image_size, window_size, global_blocks, qkv_bias)
    model = VisionTransformer(
        *(image_size, 4),
        **SIZES,
        classifier="gap",
        position_embedding="none",
        final_norm=False,
        qkv_bias="all" if qkv_bias else "none",
        window_size=window_size,
        global_blocks=global_blocks,
    )
    take(model, theirs, tmp_path / "vitdet.safetensors")
    images = rng.normal(size=(2, *image_size, 3)).astype("float32")
    outputs = models.intermediates(model)(images)
    with torch.no_grad():
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
        states = theirs(pixels, output_hidden_states=True).hidden_states
    for name, state in zip(["embedding", *(f"encoderblock_{i}" for i in range(3))], states):
        expected = state.permute(0, 2, 3, 1).numpy()
        assert_close(to_numpy(outputs[name]).reshape(expected.shape), expected, name=name)


def test_another_image_size_divides_its_own_grid(rng):
    """Fixed positions have no weights, so that both models have the same ones."""
    design = {"position_embedding": "sincos2d", "window_size": (2, 3), "global_blocks": (2,)}
    small, large = (
        randomize(VisionTransformer(size, 4, **SIZES, **design), np.random.default_rng(1))
        for size in ((12, 16), (20, 28))
    )
    resized = models.with_image_size(small, (20, 28))
    images = rng.normal(size=(2, 20, 28, 3)).astype("float32")
    assert_close(resized(images), large(images))
    assert resized.get_layer("encoderblock_0").attention.windows.counts == (3, 3)
    assert resized.get_layer("encoderblock_2").attention.windows is None


def test_what_needs_all_tokens_refuses_windows(tmp_path):
    model = random_design("ViTDet")
    message = "that attend to all tokens. Received: model .*encoderblock_0 attend within windows"
    with pytest.raises(ValueError, match=f"Attention maps need a .* {message}"):
        models.attention_maps(model)
    with pytest.raises(ValueError, match=f"Outputs of attention need a .* {message}"):
        exporting.for_inference(model, with_attention=True)
    with pytest.raises(ValueError, match="neither positions nor windows. Received"):
        exporting.for_inference(model, token_merging=1)
    views = "filters, position_similarity, features"
    assert inspection.views_of(model) == views.split(", ")
    with pytest.raises(ValueError, match=f"layers that attend to all tokens.*views {views}"):
        inspection.views_of(model, ["attention_rollout"])
