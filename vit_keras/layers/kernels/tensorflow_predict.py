"""`predict` of images in memory on TensorFlow."""

from vit_keras.layers.kernels.array_batches import batches_of, joined


def predict_array(model, images, batch_size: int | None):
    """What `model.predict` returns for an array, or None where Keras has to predict."""
    batches = batches_of(images, batch_size)
    if not batches or model.distribute_strategy.num_replicas_in_sync > 1:
        return None
    return joined([model.predict_on_batch(batch) for batch in batches])
