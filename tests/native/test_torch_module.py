"""The torch module beside timm, in training, traced and exported, and back into the model."""

import numpy as np
import pytest

from tests.designs import images_for, random_design
from tests.helpers import to_numpy, weights_by_path
from tests.native.results import channels_first
from tests.peers import peer
from tests.weights.builds import build
from vit_keras import native
from vit_keras.models import add_lora, merge_lora
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats.timm_writing import model_config

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")
register_module_forward_hook = torch.nn.modules.module.register_module_forward_hook
pytestmark = pytest.mark.on("torch")
# What timm's own arguments can make; without sizes and epsilons that JSON cannot hold.
TIMM = {
    "DINOv2": {"classifier": "token"},
    "DeiT": {},
    "DeiT III": {},
    "MAE": {},
    "registers": {},
    "mixed rotary": {},
}


@pytest.mark.parametrize(
    "name", [None, "BEiT", "EVA-02", *(pytest.param(n, marks=pytest.mark.nightly) for n in TIMM)]
)
def test_timm_loads_the_parameters_strictly_and_computes_the_same(name, rng):
    timm = peer("timm")
    if name is None:
        model = build(rng, classifier="token")
    else:
        model = random_design(name, **TIMM.get(name, {}), layer_norm_epsilon=1e-6)
    module, images = native.to_torch(model), channels_first(images_for(model))
    architecture, arguments = model_config(VisionTransformerArchitecture.from_model(model))
    arguments["num_classes"] = model.output_shape[-1]
    theirs = timm.create_model(architecture, **arguments).eval()
    theirs.load_state_dict(module.state_dict(), strict=True)
    with torch.no_grad():
        np.testing.assert_allclose(module(images), theirs(images), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["BEiT", "CLIP", "EVA-02", "ViT-22B"])
def test_a_step_of_a_torch_optimizer_goes_back_into_the_model(name):
    model = random_design(name)
    module, images = native.to_torch(model).train(), images_for(model)
    before = module(channels_first(images)).detach().numpy()
    optimizer = torch.optim.AdamW(module.parameters(), 1e-2)
    torch.nn.functional.cross_entropy(
        module(channels_first(images)), torch.tensor([0, 2])
    ).backward()
    optimizer.step()
    expected = module(channels_first(images)).detach().numpy()
    assert np.abs(expected - before).max() > 1e-2
    assert native.from_torch(module, model) is model
    np.testing.assert_allclose(
        to_numpy(model(images)), expected, atol=2e-6 * np.abs(expected).max()
    )
    again = native.to_torch(model).state_dict()
    for key, value in module.state_dict().items():
        np.testing.assert_array_equal(again[key], value, err_msg=key)


def test_a_module_shares_no_memory_with_the_model(rng):
    model = build(rng)
    before = weights_by_path(model)
    for parameter in native.to_torch(model).parameters():
        parameter.data.zero_()
    for path, value in weights_by_path(model).items():
        np.testing.assert_array_equal(value, before[path], err_msg=path)


def test_training_drops_whole_branches_units_and_patches(rng):
    from vit_keras.native.torch_blocks import drop_path

    torch.manual_seed(0)
    ones = drop_path(torch.ones(4000, 3, 2), 0.25, training=True)
    assert set(ones.unique().tolist()) == {0.0, np.float32(4 / 3)}
    assert (ones == ones[:, :1, :1]).all() and abs(ones.mean() - 1) < 0.03
    model = build(rng, dropout_rate=0.3, attention_dropout_rate=0.2, patch_keep_rate=0.5)
    module, images = native.to_torch(model), channels_first(images_for(model))
    expected = to_numpy(model(images_for(model)))
    np.testing.assert_allclose(module(images).detach(), expected, atol=1e-5)
    counts = []
    module.blocks[0].register_forward_pre_hook(lambda block, x: counts.append(x[0].shape[1]))
    first, second = (module.train()(images) for _ in range(2))
    assert (first != second).all()
    assert counts == [1 + 3] * 2  # the class token and half of 2 x 3 patches


def test_a_traced_and_an_exported_module_take_other_batches(rng):
    model = random_design("DINOv2", num_layers=1)
    module = native.to_torch(model)
    one, three = (channels_first(images_for(model, count)) for count in (2, 3))
    expected = to_numpy(model(images_for(model, 3)))
    traced = torch.jit.trace(module, one)
    np.testing.assert_allclose(traced(three).detach(), expected, atol=1e-5)
    batch = torch.export.Dim("batch")
    exported = torch.export.export(module, (one,), dynamic_shapes=({0: batch},))
    np.testing.assert_allclose(exported.module()(three).detach(), expected, atol=1e-5)


@pytest.mark.parametrize("gelu", ["exact", "tanh", "quick"])
def test_without_gradients_units_are_computed_in_place_but_not_those_that_others_hold(gelu, rng):
    model = build(rng, gelu=gelu)
    module, images = native.to_torch(model), channels_first(images_for(model))
    layer, kept = module.blocks[0].mlp.fc1, []
    keep = lambda layer, inputs, units: kept.append(units)
    expected = module(images).detach()  # computed by other operations
    with torch.no_grad():
        assert torch.equal(module(images), expected)
        for register in (layer.register_forward_hook, register_module_forward_hook):
            hook = register(keep)
            assert torch.equal(module(images), expected)
            hook.remove()
        with layer.register_forward_pre_hook(lambda layer, inputs: kept.append(inputs[0])):
            module(images)
        units = kept.pop() @ layer.weight.T + layer.bias
        torch.testing.assert_close(kept[0], units)
        module.blocks[0].mlp.fc1 = Stored(kept[0])
        assert torch.equal(module(images), expected)
        torch.testing.assert_close(kept[0], units)


class Stored(torch.nn.Module):
    """A layer that returns a tensor which it keeps."""

    def __init__(self, tensor):
        super().__init__()
        self.tensor = tensor

    def forward(self, x):
        return self.tensor


def test_tensors_can_be_saved_by_any_writer(rng, tmp_path):
    module = native.to_torch(build(rng))
    safetensors.save_file(module.state_dict(), tmp_path / "weights.safetensors")  # none transposed
    read = safetensors.load_file(tmp_path / "weights.safetensors")
    torch.save(module, tmp_path / "module.pt")
    again = torch.load(tmp_path / "module.pt", weights_only=False)
    for name, tensor in module.state_dict().items():
        assert torch.equal(read[name], tensor) and torch.equal(again.state_dict()[name], tensor)


def test_adapters_are_merged_and_nothing_goes_back_into_them(rng):
    model = add_lora(build(rng), rank=2, seed=1)
    for weight in model.trainable_weights:
        weight.assign(rng.normal(size=weight.shape).astype("float32") * 0.2)
    module, images = native.to_torch(model), images_for(model)
    expected = to_numpy(model(images))
    np.testing.assert_allclose(module(channels_first(images)).detach(), expected, atol=1e-5)
    with pytest.raises(ValueError, match="with adapters. Give `merge_lora"):
        native.from_torch(module, model)
    native.from_torch(module, merge_lora(model))


def test_timms_own_module_goes_into_a_model(rng):
    peer("timm")
    from timm.models import VisionTransformer

    sizes = {"embed_dim": 24, "depth": 2, "num_heads": 3, "mlp_ratio": 40 / 24 + 1e-3}
    theirs = VisionTransformer((16, 24), 8, num_classes=5, **sizes).eval()
    for parameter in theirs.parameters():
        parameter.data.normal_(0, 0.2)
    model = native.from_torch(theirs, build())
    images = images_for(model)
    expected = theirs(channels_first(images)).detach()
    np.testing.assert_allclose(to_numpy(model(images)), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("ViT-22B", {"mlp": "swiglu"}, "no place for a model with mlp='swiglu' beside parallel"),
        ("ViT-22B", {"qkv_bias": "qv"}, "no place for a model with qkv_bias='qv'"),
        ("ViT-22B", {"rope": {"mixed": True}}, "no place for a model with rope=Rope"),
        ("DeiT", {"num_registers": 2, "position_cover": "class"}, "distillation_token=True"),
    ],
)
def test_what_timm_has_no_names_for_is_refused(name, changes, message):
    with pytest.raises(ValueError, match=message):
        native.to_torch(random_design(name, **changes))


def test_images_of_another_size_are_refused(rng):
    module = native.to_torch(build(rng))
    with pytest.raises(ValueError, match=r"Images must be \(B, 3, 16, 24\).*\(2, 16, 24, 3\)"):
        module(torch.zeros(2, 16, 24, 3))
