"""Layers that multiply nothing by weights, which the cost rules count as nothing."""

import keras

from vit_keras import layers

WEIGHTLESS: tuple[type, ...] = (
    keras.layers.Activation,
    keras.layers.Add,
    keras.layers.Average,
    keras.layers.Concatenate,
    keras.layers.Dropout,
    keras.layers.Flatten,
    keras.layers.GlobalAveragePooling1D,
    keras.layers.GlobalAveragePooling2D,
    keras.layers.GlobalMaxPooling1D,
    keras.layers.GlobalMaxPooling2D,
    keras.layers.MaxPooling2D,
    keras.layers.ReLU,
    keras.layers.Rescaling,
    keras.layers.Reshape,
    keras.layers.UnitNormalization,
    keras.layers.UpSampling2D,
    layers.AddPositionEmbs,
    layers.AddPositionEmbs2D,
    layers.AddResizedPositions,
    layers.AddSinCosPositions,
    layers.ClassToken,
    layers.CorruptTokens,
    layers.DropClassToken,
    layers.LayerScale,
    layers.PatchDropout,
    layers.PatchMap,
    layers.RegisterTokens,
    layers.RelativeBias2D,
    layers.ResNetInput,
    layers.RestoreTokens,
    layers.RotaryPositions,
    layers.TakeClassToken,
    layers.TakeVisible,
)
