"""Random changes of training images, as functions of a key."""

import dataclasses

import tensorflow as tf

from vit_keras.data import affine, mixing, policies, tf_preprocess
from vit_keras.data.erasing import erase
from vit_keras.data.randaugment import randaugment

ERASING = 4  # folded into the key of erasing


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
        self.changes, self.is_resized_last = self._changes()
        self.mixing = mixing.Mixing(self.size, config) if mixing.is_active(config) else None

    def example(self, read, key, pair_key):
        """Reads and changes one example.

        Args:
            read: `read(window)` returns an image, or the part that `window` chooses, and its label.
            key: The example's key, two integers.
            pair_key: The key that the example shares with its neighbor.

        Returns:
            The image as the model's input, `(H, W, C)`; the label, a mask changed as the image is,
            `(H, W, 1)` uint8; and a dictionary of what was drawn for `batch`.

        Raises:
            ValueError: If RandAugment, another policy, or a change of colors meets an image without
                3 channels.
        """
        config, keys = self.config, tf.random.split(key, 4)
        image, label = self._read_part(read, keys[0])
        is_mask = len(label.shape) == 3
        if config.flip:
            image = tf_preprocess.flip(image, keys[1])
            label = tf_preprocess.flip(label, keys[1]) if is_mask else label
        if self.changes and image.shape[-1] != 3:
            raise ValueError(
                "RandAugment, `augment.policy`, and `augment.color_jitter` need 3 channels. "
                f"Received: {image.shape[-1]}. Leave them out, or set model.channels to 3"
            )
        for change in self.changes:
            image = change(image, keys[2])
        image, drawn = self.preprocessing.normalize(image), {}
        if config.erasing:
            key = tf.random.experimental.stateless_fold_in(keys[2], ERASING)
            image = erase(image, key, config.erasing)
        if affine.is_active(config):
            drawn["map"] = affine.draw(keys[3], self.size, config)
        if self.mixing:
            drawn["weight"], drawn["box"] = self.mixing.draw(pair_key)
        return image, label, drawn

    def batch(self, images, labels, drawn):
        """Warps and mixes images `(B, H, W, C)` and one-hot labels `(B, K)`, or warps masks."""
        if "map" in drawn:
            images = affine.warp(images, drawn["map"])
            if len(labels.shape) == 3:  # masks
                labels = affine.warp_masks(labels, drawn["map"])
        if self.mixing and "weight" in drawn:
            images, labels = self.mixing(images, labels, drawn["weight"], drawn["box"])
        return images, labels

    def _changes(self):
        """Makes the functions that change a whole image; says whether they resize its crop."""
        config, made = self.config, []
        if config.randaugment_layers and config.library != "pillow":
            layers, magnitude = config.randaugment_layers, config.randaugment_magnitude
            made.append(randaugment(config.library, layers, magnitude))
        chosen = policies.chosen(config)
        if not chosen:
            return made, False
        cropped = not made and config.crop == "inception"
        is_last = cropped and policies.resizes(self.preprocessing)
        method = self.preprocessing.interpolation if is_last else "bilinear"
        return [*made, policies.change(chosen, self.size, method)], is_last

    def _read_part(self, read, key):
        window = None
        if self.config.crop == "inception":
            window = lambda shape: tf_preprocess.inception_window(shape, key)
        image, label = read(window)
        if len(label.shape) == 3:
            label = self._resize(label, nearest(self.preprocessing), key)
            label = tf.cast(tf.ensure_shape(label, (*self.size, 1)), tf.uint8)
        if not self.is_resized_last:
            image = self._resize(image, self.preprocessing, key)
            image = tf.ensure_shape(image, (*self.size, image.shape[-1]))
        return image, label

    def _resize(self, image, preprocessing, key):
        """Brings an image or a mask to the model's size, both in the same way for one key."""
        if self.config.crop == "inception":
            return tf_preprocess.squeeze(image, self.size, preprocessing)
        if self.config.crop == "bit":
            return tf_preprocess.bit_crop(image, self.size, preprocessing, key)
        return tf_preprocess.resize(image, self.size, preprocessing)


def nearest(preprocessing):
    """The preprocessing of a mask: each pixel takes the nearest pixel's class."""
    return dataclasses.replace(preprocessing, interpolation="nearest", antialias=False)


def resized_label(label, image_size, preprocessing):
    """A mask `(H, W, 1)` at another size, as `preprocessing` resizes its picture; others as is."""
    if len(label.shape) != 3:
        return label
    label = tf_preprocess.resize(label, image_size, nearest(preprocessing))
    return tf.cast(tf.ensure_shape(label, (*image_size, 1)), tf.uint8)
