"""One row a variant: Table 1, AugReg's Ti and S (arXiv 2106.10270), the halved B of Figure 4."""

import dataclasses
import difflib
from typing import Any


@dataclasses.dataclass(frozen=True)
class Variant:
    """The dimensions that a variant's name stands for; `patch_size` in pixels."""

    patch_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    mlp_dim: int


VARIANTS = {
    "Ti/16": Variant(16, 192, 12, 3, 768),
    "S/16": Variant(16, 384, 12, 6, 1536),
    "S/32": Variant(32, 384, 12, 6, 1536),
    "b/32": Variant(32, 384, 12, 6, 1536),
    "B/8": Variant(8, 768, 12, 12, 3072),
    "B/16": Variant(16, 768, 12, 12, 3072),
    "B/32": Variant(32, 768, 12, 12, 3072),
    "L/16": Variant(16, 1024, 24, 16, 4096),
    "L/32": Variant(32, 1024, 24, 16, 4096),
    "H/14": Variant(14, 1280, 32, 16, 5120),
}


def get(name: str) -> Variant:
    """The row called `name`, such as "B/16"; ValueError with the nearest names otherwise."""
    if name in VARIANTS:
        return VARIANTS[name]
    near = difflib.get_close_matches(name, VARIANTS, n=3, cutoff=0.4)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise ValueError(
        f"`variant` must be one of {', '.join(map(repr, VARIANTS))}. "
        f"Received: variant={name!r}.{hint}"
    )


def architecture(name: str, **overrides: Any) -> dict[str, Any]:
    """Arguments of `VisionTransformer` for a variant, with any of them replaced."""
    return {**dataclasses.asdict(get(name)), **overrides}
