"""Models with windows of attention have the numbers of transformers' ViTDet."""

import numpy as np
import pytest

from tests.helpers import assert_close, to_numpy
from tests.peers import peer
from vit_keras import models
from vit_keras.models import VisionTransformer

SIZES = {"hidden_size": 16, "num_layers": 3, "num_heads": 2, "mlp_dim": 32, "num_classes": None}


def vitdet(image_size, window_size, global_blocks, qkv_bias):
    """transformers' model with random weights and without positions."""
    import torch

    transformers = peer("transformers")
    windows = [i for i in range(SIZES["num_layers"]) if i not in global_blocks]
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
        window_block_indices=windows,
    )
    model = transformers.VitDetModel(config).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3, generator=generator)
        model.embeddings.position_embeddings.zero_()
    return model


def take(model, theirs):
    """Gives a model the weights of transformers'."""
    state = {name: value.detach().numpy() for name, value in theirs.state_dict().items()}
    state.pop("embeddings.position_embeddings")
    heads = (SIZES["num_heads"], SIZES["hidden_size"] // SIZES["num_heads"])
    kernel = state.pop("embeddings.projection.weight").transpose(2, 3, 1, 0)
    values = {"embedding/kernel": kernel, "embedding/bias": state.pop("embeddings.projection.bias")}
    for i in range(SIZES["num_layers"]):
        old, new = f"encoder.layer.{i}", f"encoderblock_{i}"
        attention = f"{new}/MultiHeadDotProductAttention_1"
        for norm, name in (("norm1", "LayerNorm_0"), ("norm2", "LayerNorm_2")):
            values[f"{new}/{name}/gamma"] = state.pop(f"{old}.{norm}.weight")
            values[f"{new}/{name}/beta"] = state.pop(f"{old}.{norm}.bias")
        kernels = np.split(state.pop(f"{old}.attention.qkv.weight"), 3)
        biases = np.split(state.pop(f"{old}.attention.qkv.bias", np.zeros(0)), 3)
        for name, kernel, bias in zip(("query", "key", "value"), kernels, biases):
            values[f"{attention}/{name}/kernel"] = kernel.T.reshape(-1, *heads)
            if bias.size:
                values[f"{attention}/{name}/bias"] = bias.reshape(heads)
        kernel = state.pop(f"{old}.attention.proj.weight").T
        values[f"{attention}/out/kernel"] = kernel.reshape(*heads, -1)
        values[f"{attention}/out/bias"] = state.pop(f"{old}.attention.proj.bias")
        for name, layer in (("fc1", "Dense_0"), ("fc2", "Dense_1")):
            values[f"{new}/MlpBlock_3/{layer}/kernel"] = state.pop(f"{old}.mlp.{name}.weight").T
            values[f"{new}/MlpBlock_3/{layer}/bias"] = state.pop(f"{old}.mlp.{name}.bias")
    assert not state
    for variable in model.weights:
        variable.assign(values.pop(variable.path))
    assert not values


@pytest.mark.parametrize(
    ("image_size", "window_size", "global_blocks", "qkv_bias"),
    [
        ((16, 24), 2, (1,), True),  # windows that divide 4 x 6 patches
        ((16, 28), 3, (2,), True),  # windows over 6 x 9 places for 4 x 7 patches
        ((12, 20), 4, (), False),  # padding without biases
    ],
)
def test_every_block_equals_vitdets(rng, image_size, window_size, global_blocks, qkv_bias):
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
    take(model, theirs)
    images = rng.normal(size=(2, *image_size, 3)).astype("float32")
    outputs = models.intermediates(model)(images)
    with torch.no_grad():
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
        states = theirs(pixels, output_hidden_states=True).hidden_states
    for name, state in zip(["embedding", *(f"encoderblock_{i}" for i in range(3))], states):
        expected = state.permute(0, 2, 3, 1).numpy()
        ours = to_numpy(outputs[name]).reshape(expected.shape)
        assert_close(ours, expected, name=name)
