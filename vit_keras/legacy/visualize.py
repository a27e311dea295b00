"""`vit_keras.visualize` of vit-keras 0.x: the attention of a model, overlaid on a picture."""

import keras
import numpy as np

from vit_keras.data import resize, to_uint8
from vit_keras.inspection import read_out, rollout_function
from vit_keras.legacy.saved_files import AS_OPENCV, blocks_of
from vit_keras.legacy.vit import preprocess_inputs
from vit_keras.models import attention_rollout


def attention_map(model: keras.Model, image: np.ndarray) -> np.ndarray:
    """Darkens a picture where the class token's attention does not reach (Figures 6 and 14).

    Args:
        model: A model from `vit_keras.vit`, or a current model with `EncoderBlock` layers.
        image: The picture, `(H, W, 3)` with pixels in [0, 255], of any size.

    Returns:
        The picture as uint8, `(H, W, 3)`, multiplied by its attention rollout, whose maximum is 1.

    Raises:
        ValueError: If the model has no blocks. If it has your own layers, pass only the submodel
            that `vit_keras.vit` made.

    Example:
        ```python
        overlay = visualize.attention_map(model=model, image=utils.read("cat.jpg", 384))
        ```
    """
    image = np.asarray(image)
    pixels = to_uint8(resize(image, tuple(model.input_shape[1:3]), AS_OPENCV))
    images, blocks = preprocess_inputs(pixels)[None], blocks_of(model)
    if blocks:
        maps = keras.Model(model.inputs, [block.output[1] for block in blocks])
        attention = np.stack(keras.tree.flatten(maps.predict_on_batch(images)), axis=1)
        grid = tuple(model.get_layer("embedding").output.shape[1:3])
        mask = read_out(attention_rollout(attention), grid, class_token=True)[0]  # (h, w)
    else:
        mask = rollout_function(model)(images)[0]
    mask = resize((mask / mask.max())[..., None], image.shape[:2], AS_OPENCV)
    return (mask * image).astype("uint8")
