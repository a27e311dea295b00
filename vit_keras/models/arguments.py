"""Names of arguments that constructors do not take, and the right ones to take instead."""

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Constructor = TypeVar("Constructor", bound=Callable[..., Any])

_FEATURES = "num_classes=None, or 0, gives features"
_POOL = "`classifier` says what the features are read from: 'token', 'gap' or 'map'"
# What the argument is for, in the words of keras.applications, timm and Hugging Face.
OTHER_WORDS: dict[str, tuple[tuple[str, str], ...]] = {
    "include_top": (("num_classes", _FEATURES),),
    "classes": (("num_classes", ""),),
    "num_classes": (("classes", "include_top=False gives features"),),
    "num_labels": (("num_classes", ""), ("classes", "")),
    "input_shape": (("image_size", "height and width; `channels` is another argument"),),
    "image_size": (("input_shape", "(height, width, channels)"),),
    "img_size": (("image_size", ""), ("input_shape", "(height, width, channels)")),
    "channels": (("input_shape", "(height, width, channels)"),),
    "in_chans": (("channels", ""), ("input_shape", "(height, width, channels)")),
    "num_channels": (("channels", ""), ("input_shape", "(height, width, channels)")),
    "pooling": (("classifier", _POOL),),
    "global_pool": (("classifier", _POOL), ("pooling", "'avg' or 'max' with include_top=False")),
    "classifier": (("pooling", "'avg' or 'max' with include_top=False"),),
    "activation": (("classifier_activation", ""),),
    "embed_dim": (("hidden_size", ""),),
    "depth": (("num_layers", ""),),
    "num_hidden_layers": (("num_layers", ""),),
    "num_attention_heads": (("num_heads", ""),),
    "intermediate_size": (("mlp_dim", ""),),
    "drop_rate": (("dropout_rate", ""),),
    "attn_drop_rate": (("attention_dropout_rate", ""),),
    "drop_path_rate": (("stochastic_depth_rate", ""),),
}
PRETRAINED = (
    "`vit_keras.weights.load(model, weights)` and the constructors of vit_keras.applications read "
    "weights"
)


def names_arguments(also: Callable | None = None) -> Callable[[Constructor], Constructor]:
    """Decorates a constructor so that it answers an unknown argument with the right name.

    Args:
        also: A constructor to which the decorated one hands its `**` arguments on.

    Raises:
        TypeError: At a call with an argument that the constructor does not have.

    Example:
        >>> VisionTransformer(224, 16, 192, 12, 3, 768, classes=10)
        TypeError: VisionTransformer takes `num_classes`. Received: classes=10
    """

    def decorate(constructor):
        names = argument_names(constructor) + (argument_names(also) if also else [])

        @functools.wraps(constructor)
        def checked(*args, **kwargs):
            for name, value in kwargs.items():
                if name not in names:
                    raise TypeError(_message(constructor.__name__, name, value, names))
            return constructor(*args, **kwargs)

        vars(checked)["argument_names"] = names
        return checked

    return decorate


def argument_names(constructor: Callable) -> list[str]:
    """Returns the names of all arguments of a decorated constructor, or of any callable."""
    if "argument_names" in vars(constructor):
        return vars(constructor)["argument_names"]
    parameters = inspect.signature(constructor).parameters.values()
    return [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]


def _message(function, name, value, names):
    received = f"Received: {name}={value!r}"
    if name == "weights":
        return f"{function} has initial weights only. {received}; {PRETRAINED}"
    for right, meaning in OTHER_WORDS.get(name, ()):
        if right in names:
            return f"{function} takes `{right}`. {received}" + (f"; {meaning}" if meaning else "")
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"{function} takes `{near[0]}`. {received}"
    return f"{function} has no argument `{name}`. {received}; it takes {', '.join(names)}"
