"""JAX' functions and TensorFlow's module: names, training, other batches, and back."""

import keras
import numpy as np
import pytest

from tests.designs import images_for, random_design
from tests.helpers import to_numpy, weights_by_path
from tests.weights.builds import build
from vit_keras import models, native, weights
from vit_keras.native.tensors import flat

on_torch = pytest.mark.on("torch")  # where Keras compiles nothing; the objects are JAX' own
on_tensorflow = pytest.mark.on("tensorflow")


@on_torch
@pytest.mark.parametrize("classifier", ["token", "map"])
def test_the_reader_of_flax_files_takes_the_parameters(rng, tmp_path, classifier):
    model = build(rng, classifier=classifier, gelu="tanh")
    _, params = native.to_jax(model)
    arrays = {name: np.asarray(x) for name, x in flat(params).items()}
    if classifier == "token":
        assert arrays["Transformer/encoderblock_0/LayerNorm_0/scale"].shape == (24,)
    np.savez(tmp_path / "flax.npz", **arrays)
    again = weights.from_checkpoint(tmp_path / "flax.npz", image_size=(16, 24))
    for path, value in weights_by_path(model).items():
        np.testing.assert_array_equal(weights_by_path(again)[path], value, err_msg=path)


@on_torch
def test_changed_parameters_of_jax_go_back_into_the_model():
    import jax

    model = random_design("DINOv3", num_layers=1)
    images = images_for(model)
    apply, params = native.to_jax(model)
    apply, before = jax.jit(apply), to_numpy(model(images))
    params = jax.tree.map(lambda p: 0.9 * p, params)
    expected = np.asarray(apply(params, images))
    assert np.abs(expected - before).max() > 1e-2
    assert native.from_jax(params, model) is model
    np.testing.assert_allclose(to_numpy(model(images)), expected, atol=1e-5)


@on_torch
@pytest.mark.nightly
def test_a_function_runs_on_devices_side_by_side_and_in_bfloat16(rng):
    import jax
    import jax.numpy as jnp

    model = build(rng, num_layers=1)
    images, (apply, params) = images_for(model), native.to_jax(model)
    expected = to_numpy(model(images))
    copies = jax.tree.map(lambda x: x[None], params)
    np.testing.assert_allclose(jax.pmap(apply)(copies, images[None])[0], expected, atol=1e-5)
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    output = jax.jit(apply)(half, images)
    assert output.dtype == jnp.bfloat16
    scale = np.abs(expected).max()
    np.testing.assert_allclose(output.astype("float32"), expected, atol=0.05 * scale)


@on_torch
@pytest.mark.nightly
def test_a_key_makes_a_training_step():
    import jax

    rates = {"dropout_rate": 0.3, "stochastic_depth_rate": 0.2, "patch_keep_rate": 0.5}
    model = random_design("DINOv2", **rates)
    apply, params = native.to_jax(model)
    apply, images = jax.jit(apply), images_for(model)
    first, again, other = (apply(params, images, jax.random.key(i)) for i in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (np.asarray(first) != np.asarray(other)).any()
    np.testing.assert_allclose(apply(params, images), to_numpy(model(images)), atol=1e-5)


@on_tensorflow
def test_training_drops_whole_branches_and_patches():
    import tensorflow as tf

    from vit_keras.native.computation import Computation
    from vit_keras.native.design import design_of
    from vit_keras.native.tensorflow_module import OPERATIONS

    model = random_design("DINOv2", num_layers=1, patch_keep_rate=0.5)
    compute, uniform = Computation(design_of(model), OPERATIONS), tf.random.uniform
    keras.utils.set_random_seed(0)
    ones = compute._drop(tf.ones((4000, 3, 2)), 0.25, uniform, whole=True).numpy()
    assert set(np.unique(ones).tolist()) == {0.0, np.float32(4 / 3)}
    assert (ones == ones[:, :1, :1]).all()
    assert abs(ones.mean() - 1) < 0.03
    tokens = np.arange(2 * 17.0).reshape(2, 17, 1).astype("float32")
    kept = compute._drop_patches(tf.constant(tokens), uniform).numpy()[..., 0]
    assert kept.shape == (2, 5 + 6)  # class token, registers and half of 12 patches
    np.testing.assert_array_equal(kept[:, :5], tokens[:, :5, 0])
    assert (np.diff(kept, axis=1) > 0).all()
    assert np.isin(kept, tokens).all()


@on_tensorflow
def test_a_step_in_tensorflow_goes_back_into_the_model():
    import tensorflow as tf

    model = random_design("EVA-02", dropout_rate=0.2, num_layers=1)
    images, module = images_for(model), native.to_tensorflow(model)
    assert module.params["Transformer"]["encoderblock_0"]["LayerNorm_0"]["scale"].shape == (16,)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(module(images, training=True) ** 2)
    for variable, gradient in zip(
        module.trainable_variables, tape.gradient(loss, module.trainable_variables)
    ):
        variable.assign_sub(0.1 * gradient)
    expected, before = module(images).numpy(), to_numpy(model(images))
    assert np.abs(expected - before).max() > 1e-2
    assert native.from_tensorflow(module, model) is model
    np.testing.assert_allclose(to_numpy(model(images)), expected, atol=2e-6)


@on_tensorflow
@pytest.mark.nightly
def test_a_module_is_saved_and_takes_any_batch(rng, tmp_path):
    import tensorflow as tf

    model = build(rng, num_layers=1)
    module = native.to_tensorflow(model)
    signature = [tf.TensorSpec((None, 16, 24, 3), "float32")]
    module.serve = tf.function(module.__call__, input_signature=signature)
    tf.saved_model.save(module, tmp_path / "saved")
    again = tf.saved_model.load(tmp_path / "saved")
    for count in (1, 3):
        images = images_for(model, count)
        expected = to_numpy(model(images))
        np.testing.assert_allclose(again.serve(images), expected, atol=1e-5)


def other_model(kind):
    if kind == "hybrid":
        return models.HybridViT(32, (1,), 0.5, 1, **SMALL)
    model = build()
    if kind == "features":
        return models.intermediates(model)
    if kind == "softmax":
        return keras.Model(model.input, keras.layers.Softmax()(model.output))
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


SMALL = {"hidden_size": 24, "num_layers": 1, "num_heads": 3, "mlp_dim": 40, "num_classes": 5}


@pytest.mark.once
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("hybrid", r"no ResNet stem. Received: a hybrid, resnet_layers=\(1,\)"),
        ("features", "from images to one output.*outputs"),
        ("softmax", "layers that such a model has not: Softmax 'softmax'; missing layers: none"),
        ("dense", "Native objects are made of Vision Transformers.*Received: model 'sequential"),
    ],
)
def test_other_models_are_refused(kind, message):
    with pytest.raises(ValueError, match=message):
        native.to_tensorflow(other_model(kind))


@pytest.mark.once
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position_embedding": "learned_2d"}, "position_embedding='learned_2d'"),
        ({"position_embedding": "relative"}, "position_embedding='relative'"),
        ({"position_embedding_at": "every"}, "position_embedding_at='every'"),
        ({"classifier_activation": "tanh"}, "`classifier_activation` must be one of.*'tanh'"),
    ],
)
def test_options_that_native_objects_do_not_compute_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        native.to_tensorflow(build(**changes))


@pytest.mark.once
def test_wrong_parameters_are_listed_and_leave_the_model_as_it_was(rng):
    model = build(rng)
    module, before = native.to_tensorflow(build(rng)), weights_by_path(model)
    module.params["other"] = module.params.pop("cls")
    module.params["head"]["bias"] = module.params["head"]["kernel"]
    with pytest.raises(ValueError) as error:
        native.from_tensorflow(module, model)
    assert str(error.value).splitlines()[1:] == [
        "  missing: cls, (1, 1, 24)",
        "  unknown: other",
        "  head/bias is (24, 5), and (5,) in the model",
    ]
    for path, value in weights_by_path(model).items():
        np.testing.assert_array_equal(value, before[path])


@pytest.mark.once
def test_a_missing_framework_is_named(monkeypatch):
    monkeypatch.setattr("vit_keras.extras.is_installed", lambda module: False)
    with pytest.raises(ImportError, match=r"`to_jax` needs jax: pip install \"vit-keras\[jax\]\""):
        native.to_jax  # noqa: B018 (the attribute imports JAX)
