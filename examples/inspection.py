# %% [markdown]
# # What a model looks at
#
# This notebook shows the attention, position embeddings and features of a Vision Transformer as
# arrays and as pictures. The photographs come with scikit-learn.

# %%
# %pip install -q "vit-keras[data,weights,jax]" matplotlib
import os

os.environ.setdefault("KERAS_BACKEND", "jax")  # or "tensorflow", or "torch"

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from vit_keras import applications, inspection, models

SMALL = bool(os.environ.get("SMALL"))  # a test runs the example with a small model, in seconds

# %%
if SMALL:
    model = applications.ViTTi16(input_shape=(64, 96, 3), classes=10)  # random weights
else:
    model = applications.ViTB16(weights="augreg-imagenet")
height, width = model.input_shape[1:3]
photographs = load_sample_images().images
pictures = np.stack(
    [np.asarray(Image.fromarray(picture).resize((width, height))) for picture in photographs]
)
images = applications.preprocess_input(pictures.astype("float32"), model=model)
images = np.asarray(images)  # (2, height, width, 3) in [-1, 1]

# %% [markdown]
# ## Attention
#
# `attention_maps` returns all weights of softmax(q kᵀ / √d), Eq. 6 of the paper: `(B, layers,
# heads, N, N)`. The rollout multiplies them over the layers and says how much of each patch reaches
# the class token (Figure 6 of the paper). It is brighter where the model looks.

# %%
attention = models.attention_maps(model).predict(images, verbose=0)
views = inspection.attention_views(model, images)
print("attention", attention.shape, "rollout", views.rollout.shape)

figure, axes = plt.subplots(2, 2, figsize=(8, 5))
for row, picture, rollout in zip(axes, pictures, views.rollout):
    row[0].imshow(picture)
    row[1].imshow(picture)
    place = (-0.5, width - 0.5, height - 0.5, -0.5)
    row[1].imshow(rollout, cmap="inferno", alpha=0.6, extent=place, interpolation="bicubic")
    for axis in row:
        axis.axis("off")
plt.show()

# %% [markdown]
# The next figure shows how far each head looks, in pixels, from layer to layer (Figure 7, right):
# in the first layers, some heads look everywhere, and others only at neighboring patches.

# %%
layers = np.arange(len(views.distance_px))
plt.plot(layers, views.distance_px, "o", markersize=4)
plt.xlabel("layer")
plt.ylabel("mean attention distance (pixels)")
plt.show()

# %% [markdown]
# ## Positions
#
# This figure shows the cosine similarity of each patch's position embedding to all others (Figure
# 7, center). Trained embeddings reflect rows and columns, which the model had to discover by
# itself; random ones do not.

# %%
similarity = inspection.position_similarity(model)  # (rows, columns, rows, columns)
rows, columns = similarity.shape[:2]
figure, axes = plt.subplots(rows, columns, figsize=(columns, rows))
for place, axis in np.ndenumerate(axes):
    axis.imshow(similarity[place], vmin=-1, vmax=1)
    axis.axis("off")
plt.show()

# %% [markdown]
# ## Features
#
# This figure shows the first three principal components of the patches' features as red, green and
# blue: patches with the same color have similar features.

# %%
components = inspection.feature_components(model, images)  # {block: (B, rows, columns, 3)}
last = list(components.values())[-1]
low, high = last.min(axis=(0, 1, 2)), last.max(axis=(0, 1, 2))
figure, axes = plt.subplots(1, 2, figsize=(8, 3))
for axis, colors in zip(axes, (last - low) / (high - low)):
    axis.imshow(colors)
    axis.axis("off")
plt.show()

# %% [markdown]
# `vit-keras visualize MODEL PICTURE --out figures` draws all of these, and `vit-keras info MODEL`
# prints what a model costs.
