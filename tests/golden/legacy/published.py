"""Writes `published.npz`, a tiny model in Google's format; runs in this project's environment."""

import numpy as np

from vit_keras import models, weights

rng = np.random.default_rng(2)
model = models.VisionTransformer(32, 8, 16, 2, 4, 24, num_classes=5, representation_size=12)
for variable in model.weights:
    variable.assign(rng.normal(0, 0.3, variable.shape))
weights.save(model, "published.npz", "google")
