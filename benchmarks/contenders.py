"""The contenders that `benchmarks.run` times, one row each.

A contender's `make(case)` returns `step(count)` and the model's number of parameters. `step(count)`
runs `count` training steps or inferences on the same images and returns when they are done. For
augmentation it makes `count` times the same batches.
"""

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks import augmentation, gemm, keras_models, peers
from benchmarks.cases import AUGMENT, FAMILIES, MODES, Case

ROOT = pathlib.Path(__file__).parents[1]


class Contender(NamedTuple):
    """One row of the comparison.

    Attributes:
        make: makes `(step, number of parameters)` from a `Case`.
        backend: the framework, which decides the environment and the matrix product to compare to.
        modules: modules to import before memory is measured, since some of these libraries take as
            much memory as a model.
        modes: the modes of a case that it runs.
        has_families: whether it has the models of `FAMILIES`.
    """

    make: Callable
    backend: str
    modules: tuple[str, ...] = ()
    modes: tuple[str, ...] = MODES
    has_families: bool = True

    def runs(self, case: Case) -> bool:
        """Whether it can run a case."""
        return case.mode in self.modes and (self.has_families or case.size not in FAMILIES)


OURS = ("vit_keras.models", "vit_keras.training", "vit_keras.data")
HUB = ("keras_hub.models", "vit_keras.data")  # on TensorFlow, vit_keras.data feeds both
TIMM = ("benchmarks.torchvision_operators", "timm.models")
TORCHVISION = ("benchmarks.torchvision_operators", "torchvision.models")
TRANSFORMERS = (
    "benchmarks.torchvision_operators",
    "transformers.models.vit.modeling_vit",
)
FLAX = ("optax", "benchmarks.flax_vit")
SIZES_ALONE = {"has_families": False}
AUGMENTS = {"modes": (AUGMENT,)}
CONTENDERS = {
    "ours-tensorflow": Contender(keras_models.ours, "tensorflow", OURS),
    "ours-jax": Contender(keras_models.ours, "jax", OURS),
    "ours-torch": Contender(keras_models.ours, "torch", OURS),
    "ours-called-torch": Contender(keras_models.called_torch, "torch", OURS, modes=("infer",)),
    "ours-compiled-torch": Contender(keras_models.compiled, "torch", OURS),
    "ours-compiled-tensorflow": Contender(keras_models.compiled, "tensorflow", OURS),
    "ours-augment": Contender(augmentation.our_steps, "tensorflow", OURS, **AUGMENTS),
    "lora-tensorflow": Contender(keras_models.lora, "tensorflow", OURS),
    "lora-jax": Contender(keras_models.lora, "jax", OURS),
    "lora-torch": Contender(keras_models.lora, "torch", OURS),
    "timm": Contender(peers.timm, "torch", TIMM),
    "timm-compiled": Contender(peers.timm_compiled, "torch", TIMM),
    "timm-augment": Contender(augmentation.timm_steps, "torch", TIMM, **AUGMENTS),
    "transformers": Contender(peers.transformers, "torch", TRANSFORMERS, **SIZES_ALONE),
    "torchvision": Contender(peers.torchvision, "torch", TORCHVISION, **SIZES_ALONE),
    "flax": Contender(peers.flax, "jax", FLAX, **SIZES_ALONE),
    **{
        f"keras_hub-{backend}": Contender(keras_models.keras_hub, backend, HUB, **SIZES_ALONE)
        for backend in ("tensorflow", "jax", "torch")
    },
    "keras_hub-compiled-tensorflow": Contender(
        keras_models.keras_hub_compiled, "tensorflow", HUB, **SIZES_ALONE
    ),
    **{f"gemm-{backend}": Contender(gemm.contender(backend), backend) for backend in gemm.PRODUCTS},
}


def names_of(case: Case, backends: Sequence[str]) -> list[str]:
    """The contenders for a case on these frameworks: our models, the peers, then the products.

    Augmentation is the same on every framework. LoRA is another training, and compiling takes a
    while, so both are left out.
    """
    names = [
        name
        for name, row in CONTENDERS.items()
        if row.runs(case) and (row.backend in backends or case.mode == AUGMENT)
    ]
    names = [name for name in names if "lora" not in name and "compiled" not in name]
    return sorted(names, key=lambda name: (not name.startswith("ours"), name.startswith("gemm")))


def environment(name: str, package: pathlib.Path = ROOT) -> dict[str, str]:
    """The environment variables of a contender's process.

    Args:
        name: The contender.
        package: The folder that `vit_keras` is imported from. `benchmarks` and `tests` are always
            this checkout's.
    """
    places = [str(package), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
        "KERAS_BACKEND": CONTENDERS[name].backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
