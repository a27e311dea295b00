# %% [markdown]
# # Fine-tune a Vision Transformer in twenty lines
#
# The pictures are in one folder for each class, such as `photos/cat/1.jpg`. The pre-trained model
# and the new classifier are Keras models, so `compile` and `fit` do the rest, on TensorFlow, JAX or
# PyTorch.

# %%
# %pip install -q "vit-keras[data,weights,jax]"
import os

os.environ.setdefault("KERAS_BACKEND", "jax")  # or "tensorflow", or "torch"

import pathlib
import tempfile

import keras
from PIL import Image
from sklearn.datasets import load_digits

from vit_keras.applications import ViTmu16, ViTS16

SMALL = bool(os.environ.get("SMALL"))  # a test runs the example with a small model, in seconds

# %% [markdown]
# ## Pictures
#
# scikit-learn's handwritten digits stand in for your pictures. Put the path of your own folder here
# instead.

# %%
folder = pathlib.Path(tempfile.mkdtemp())
digits = load_digits()
for number, (pixels, label) in enumerate(zip(digits.images, digits.target)):
    (folder / str(label)).mkdir(exist_ok=True)
    picture = Image.fromarray((pixels * (255 / 16)).astype("uint8"))
    picture.save(folder / str(label) / f"{number:04}.png")

# %% [markdown]
# ## Twenty lines
#
# This S/16, from "How to train your ViT?", was pre-trained on ImageNet-21k; it is downloaded once
# and verified. `help(ViTS16)` lists the published weights. Its features are the mean over all
# patches, `(B, D)`.

# %%
keras.utils.set_random_seed(0)
if SMALL:
    side, rate, epochs = 32, 3e-3, 4
    encoder = ViTmu16(include_top=False, pooling="avg", input_shape=(side, side, 3))
else:
    side, rate, epochs = 224, 1e-4, 3
    encoder = ViTS16(include_top=False, pooling="avg", weights="augreg-imagenet21k")

train, held_out = keras.utils.image_dataset_from_directory(
    folder, image_size=(side, side), validation_split=0.2, subset="both", seed=0
)
model = keras.Sequential(
    [
        keras.layers.Rescaling(1 / 127.5, offset=-1),  # pixels from 0 to 255 become -1 to 1
        encoder,
        keras.layers.Dense(len(train.class_names), activation="softmax"),
    ]
)
optimizer = keras.optimizers.AdamW(rate, global_clipnorm=1.0)
model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(train, validation_data=held_out, epochs=epochs, verbose=2).history
print(f"accuracy on held-out pictures: {history['val_accuracy'][-1]:.2%}")

# %% [markdown]
# ## Save the model
#
# The file opens in any Python with Keras after `import vit_keras`, and `vit-keras export` turns it
# into files for servers and phones. The recipes that `vit-keras train --list` prints do the same
# with augmentation, learning rates that fall from layer to layer, early stopping and exact resume.

# %%
model.save(folder / "model.keras")
again = keras.saving.load_model(folder / "model.keras")
images, labels = next(iter(held_out))
print(
    "predicted:", again.predict(images[:8], verbose=0).argmax(axis=1), "true:", labels[:8].numpy()
)
