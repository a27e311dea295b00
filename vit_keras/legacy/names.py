"""The layers of vit-keras 0.x under the names in its files.

Importing this module registers the names. `import vit_keras` does not, because "Custom" is the
package of every class that is registered without one, such as your own `ClassToken`.
"""

import keras

from vit_keras.layers.positions import AddPositionEmbs
from vit_keras.layers.tokens import ClassToken
from vit_keras.legacy.layers import MultiHeadSelfAttention, TransformerBlock

KINDS = (AddPositionEmbs, ClassToken, MultiHeadSelfAttention, TransformerBlock)
LAYERS = {kind.__name__: kind for kind in KINDS}
keras.saving.get_custom_objects().update({f"Custom>{name}": LAYERS[name] for name in LAYERS})
