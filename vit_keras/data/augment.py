"""Random changes of training images: from an `AugmentConfig` to functions of a key."""

import tensorflow as tf

from vit_keras.data import affine, mixing, tf_preprocess
from vit_keras.data.randaugment import randaugment


class Augmentation:
    """What happens to each example, and then to the batch.

    All draws are made by example, from its key or its pair's, so that an example is changed to the
    same bits whatever batch it comes in. Raises ValueError where images cannot be changed so.
    """

    def __init__(self, config, image_size, preprocessing):
        self.config, self.size, self.preprocessing = config, tuple(image_size), preprocessing
        self.randaugment = config.randaugment_layers and randaugment(
            config.library, config.randaugment_layers, config.randaugment_magnitude
        )
        self.mixing = mixing.is_active(config) and mixing.Mixing(self.size, config)

    def example(self, read, key, pair_key):
        """Image `(H, W, C)` as the model wants it, label, and what `batch` needs to know.

        `read(window)` gives an image or a part of it, and its label; keys are two integers each.
        """
        config, keys = self.config, tf.random.split(key, 4)
        image, label = self._part(read, keys[0])
        image = tf.ensure_shape(image, (*self.size, image.shape[-1]))
        if config.flip:
            image = tf_preprocess.flip(image, keys[1])
        if self.randaugment:
            if image.shape[-1] != 3:
                raise ValueError(f"RandAugment needs 3 channels. Received: {image.shape[-1]}")
            image = self.randaugment(image, keys[2])
        image, drawn = self.preprocessing.normalise(image), {}
        if affine.is_active(config):
            drawn["map"] = affine.draw(keys[3], self.size, config)
        if self.mixing:
            drawn["weight"], drawn["box"] = self.mixing.draw(pair_key)
        return image, label, drawn

    def batch(self, images, labels, drawn):
        """Images `(B, H, W, C)` and one-hot labels `(B, K)`, warped and mixed."""
        if "map" in drawn:
            images = affine.warp(images, drawn["map"])
        if "weight" in drawn:
            images, labels = self.mixing(images, labels, drawn["weight"], drawn["box"])
        return images, labels

    def _part(self, read, key):
        if self.config.crop == "inception":
            image, label = read(lambda shape: tf_preprocess.inception_window(shape, key))
            return tf_preprocess.squeeze(image, self.size, self.preprocessing), label
        image, label = read(None)
        if self.config.crop == "bit":
            return tf_preprocess.bit_crop(image, self.size, self.preprocessing, key), label
        return tf_preprocess.resize(image, self.size, self.preprocessing), label
