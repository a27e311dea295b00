"""How the code that weights come from computes."""

import dataclasses

from vit_keras.models import Preprocessing

PUBLISHED = Preprocessing()


@dataclasses.dataclass(frozen=True)
class Numerics:
    """How the code that a format belongs to computes, prepares images and resizes a grid."""

    gelu: str = "exact"
    layer_norm_epsilon: float = 1e-6
    preprocessing: Preprocessing = PUBLISHED
    interpolation: str = "bilinear"
    standardization: str = "vit"  # of a hybrid's stem, and so is the next
    group_norm_epsilon: float = 1e-6
    class_names: tuple[str, ...] | None = None

    def to_json(self) -> dict:
        """For a file's metadata."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, note: dict) -> "Numerics":
        """The reverse of `to_json`."""
        pixels = Preprocessing(**_tuples(note["preprocessing"]))
        return cls(**{**_tuples(note), "preprocessing": pixels})


def _tuples(fields: dict) -> dict:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
