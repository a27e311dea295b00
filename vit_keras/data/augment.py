"""Random changes of training images, as functions of a key."""

import tensorflow as tf

from vit_keras.data import affine, mixing, tf_preprocess
from vit_keras.data.randaugment import randaugment


class Augmentation:
    """Changes each example of a batch, and then the batch, as an `AugmentConfig` says.

    Every random number follows from the key of an example or of its pair, so an example changes to
    the same bits in any batch.

    Args:
        config: An `AugmentConfig`.
        image_size: Height and width in pixels.
        preprocessing: The model's `Preprocessing`.
    """

    def __init__(self, config, image_size, preprocessing):
        self.config, self.size, self.preprocessing = config, tuple(image_size), preprocessing
        self.randaugment = config.randaugment_layers and randaugment(
            config.library, config.randaugment_layers, config.randaugment_magnitude
        )
        self.mixing = mixing.Mixing(self.size, config) if mixing.is_active(config) else None

    def example(self, read, key, pair_key):
        """Reads and changes one example.

        Args:
            read: `read(window)` returns an image, or the part that `window` chooses, and its label.
            key: The example's key, two integers.
            pair_key: The key that the example shares with its neighbor.

        Returns:
            The image as the model's input, `(H, W, C)`; the label; and a dictionary of what was
            drawn for `batch`.

        Raises:
            ValueError: If RandAugment meets an image without 3 channels.
        """
        config, keys = self.config, tf.random.split(key, 4)
        image, label = self._read_part(read, keys[0])
        image = tf.ensure_shape(image, (*self.size, image.shape[-1]))
        if config.flip:
            image = tf_preprocess.flip(image, keys[1])
        if self.randaugment:
            if image.shape[-1] != 3:
                raise ValueError(
                    f"RandAugment needs 3 channels. Received: {image.shape[-1]}. Set "
                    "augment.randaugment_layers to 0, or model.channels to 3"
                )
            image = self.randaugment(image, keys[2])
        image, drawn = self.preprocessing.normalize(image), {}
        if affine.is_active(config):
            drawn["map"] = affine.draw(keys[3], self.size, config)
        if self.mixing:
            drawn["weight"], drawn["box"] = self.mixing.draw(pair_key)
        return image, label, drawn

    def batch(self, images, labels, drawn):
        """Warps and mixes images `(B, H, W, C)` and one-hot labels `(B, K)`."""
        if "map" in drawn:
            images = affine.warp(images, drawn["map"])
        if self.mixing and "weight" in drawn:
            images, labels = self.mixing(images, labels, drawn["weight"], drawn["box"])
        return images, labels

    def _read_part(self, read, key):
        if self.config.crop == "inception":
            image, label = read(lambda shape: tf_preprocess.inception_window(shape, key))
            return tf_preprocess.squeeze(image, self.size, self.preprocessing), label
        image, label = read(None)
        if self.config.crop == "bit":
            return tf_preprocess.bit_crop(image, self.size, self.preprocessing, key), label
        return tf_preprocess.resize(image, self.size, self.preprocessing), label
