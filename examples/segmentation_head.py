# %% [markdown]
# # A segmentation head
#
# `models.segmenter` puts a decoder on the blocks of an encoder and returns the logits of each
# pixel, `(B, H, W, classes)`. The pictures here are handwritten digits on crops of two photographs,
# all from scikit-learn, and the masks say which pixels are ink.

# %%
# %pip install -q "vit-keras[data,weights,jax]" matplotlib
import os

os.environ.setdefault("KERAS_BACKEND", "jax")  # or "tensorflow", or "torch"

import keras
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images

from vit_keras import models, training, weights

SMALL = bool(os.environ.get("SMALL"))  # a test runs the example with a small model, in seconds
SIDE = 32 if SMALL else 224  # pixels

# %% [markdown]
# ## Pictures and masks
#
# A mask holds the class number of each pixel: 0 for the background and 1 for ink. Pixels with 255
# would have no class, and would be ignored. Training pictures show the left halves of the
# photographs, and test pictures their right halves.

# %%
photographs, digits = load_sample_images().images, load_digits().images
rng = np.random.default_rng(0)


def draw(count, right):
    """Returns pictures in [-1, 1], `(count, SIDE, SIDE, 3)`, and masks, `(count, SIDE, SIDE)`."""
    pictures, masks = [], []
    for _ in range(count):
        half = np.array_split(photographs[rng.integers(2)], 2, axis=1)[right]
        top, left = (rng.integers(length - 200) for length in half.shape[:2])
        crop = Image.fromarray(half[top : top + 200, left : left + 200]).resize((SIDE, SIDE))
        digit = Image.fromarray(digits[rng.integers(len(digits))]).resize((SIDE, SIDE))
        mask = np.asarray(digit) > 8
        color = rng.integers(160, 256, 3)
        pictures.append(np.where(mask[..., None], color, np.asarray(crop) * 0.6) / 127.5 - 1)
        masks.append(mask)
    return np.array(pictures, "float32"), np.array(masks, "int32")


train, test = draw(128 if SMALL else 2000, right=0), draw(32 if SMALL else 200, right=1)

# %% [markdown]
# ## Model
#
# `decoder="linear"` would be one dense layer on the last feature map. "multilevel" adds the outputs
# of four blocks, and doubles the resolution of the map twice.

# %%
keras.utils.set_random_seed(0)
if SMALL:
    encoder = models.VisionTransformer(SIDE, 8, 48, 2, 3, 96, num_classes=None)
else:
    encoder = models.from_variant("S/16", image_size=SIDE, num_classes=None)
    weights.load(encoder, weights.resolve("S/16", "augreg-imagenet21k"), head="drop")
model = models.segmenter(encoder, num_classes=2, decoder="multilevel", width=32)
model.summary()

# %%
accuracy = keras.metrics.SparseCategoricalAccuracy(name="pixels")
iou = keras.metrics.MeanIoU(num_classes=2, sparse_y_pred=False, name="iou")
optimizer = training.AdamW(3e-3 if SMALL else 1e-4, global_clipnorm=1.0)
model.compile(optimizer, training.PixelCrossentropy(), metrics=[accuracy, iou])
model.fit(*train, validation_data=test, batch_size=16, epochs=4 if SMALL else 10, verbose=2)
scores = model.evaluate(*test, verbose=0, return_dict=True)
print(f"mean IoU on test pictures: {scores['iou']:.2%}")

# %% [markdown]
# ## Predicted masks

# %%
predicted = model.predict(test[0][:6], verbose=0).argmax(axis=-1)
figure, axes = plt.subplots(3, 6, figsize=(9, 5))
for column, (picture, mask, answer) in enumerate(zip(test[0], test[1], predicted)):
    for axis, image in zip(axes[:, column], ((picture + 1) / 2, mask, answer)):
        axis.imshow(image)
        axis.axis("off")
figure.suptitle("pictures, masks, and the predicted masks")
plt.show()

# %% [markdown]
# The command `vit-keras train --config segment --dataset folder:PATH` does all of this with your
# own folder of pictures and masks, with augmentation, exact resume and a report.
