# %% [markdown]
# # Features of pictures, and the most similar ones
#
# A model turns each picture into a vector. Vectors of similar pictures point in the same direction.
# So the nearest vectors answer "which of my pictures look like this one?", and the nearest
# neighbor's label classifies a picture without training.

# %%
# %pip install -q "vit-keras[search,hub,jax]" matplotlib
import os

os.environ.setdefault("KERAS_BACKEND", "jax")  # or "tensorflow", or "torch"

import pathlib
import tempfile

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from vit_keras import applications, retrieval

SMALL = bool(os.environ.get("SMALL"))  # a test runs the example with a small model, in seconds

# %% [markdown]
# ## Pictures
#
# scikit-learn's handwritten digits stand in for your pictures. `old` is the collection, and `new`
# holds the pictures to look up.

# %%
folder = pathlib.Path(tempfile.mkdtemp())
digits = load_digits()
count = 300 if SMALL else len(digits.images)
for number, (pixels, label) in enumerate(zip(digits.images[:count], digits.target)):
    place = folder / ("new" if number % 10 == 0 else "old") / str(label)
    place.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray((pixels * (255 / 16)).astype("uint8"))
    picture.save(place / f"{number:04}.png")

# %% [markdown]
# ## A vector for each picture
#
# DINOv2 was trained without labels, and its features work well for search without fine-tuning. The
# table has one row for each picture: its path, its label, and its vector. The job writes the table
# in parts; if it is stopped, the same lines continue where it stopped.

# %%
if SMALL:
    model = applications.ViTmu16(input_shape=(32, 32, 3), include_top=False)  # random weights
else:
    shape = (224, 224, 3)  # positions are resized from 518 pixels
    model = applications.DINOv2S14(include_top=False, weights="lvd142m", input_shape=shape)
embedder = retrieval.open_embedder(model, tokens="class", normalize=True)
pictures = retrieval.list_pictures([f"folder:{folder / 'old'}"])
job = retrieval.EmbeddingJob(embedder, pictures, folder / "features.parquet")
for done in job.run():
    print(f"{done} of {job.total}", end="\r")
table = retrieval.EmbeddingTable(folder / "features.parquet")
print(len(table), "vectors of", embedder.shape[0], "numbers")

# %% [markdown]
# ## Search
#
# Tables of up to 200,000 x 768 numbers are searched exactly. For larger ones,
# `retrieval.open_index(table)` builds a graph that answers in milliseconds.

# %%
queries = sorted((folder / "new").glob("*/*.png"))
answers = list(retrieval.search_pictures(table, embedder, queries, count=5))
nearest = np.array([[match.picture.label for match in answer.matches] for answer in answers])
labels = np.array([path.parent.name for path in queries])
print(f"the nearest picture has the same label: {np.mean(nearest[:, 0] == labels):.2%}")

# %%
figure, axes = plt.subplots(4, 6, figsize=(6, 4))
for row, answer in zip(axes, answers):
    paths = [answer.query.path, *(match.picture.path for match in answer.matches)]
    for axis, path in zip(row, paths):
        axis.imshow(Image.open(path), cmap="gray")
        axis.axis("off")
figure.suptitle("new pictures, and the five most similar ones")
plt.show()
