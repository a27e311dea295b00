"""How tests let JAX and XLA compile: most of a suite on JAX is compiling small models."""

import itertools
import threading

# With little optimization, in one piece, and without the emitters of fused loops, which take the
# most: building and fitting a small ViT takes 1.9 s of a processor instead of 5.3.
FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
FLAGS += "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"


def quick(environment: dict) -> dict:
    """The environment of a process on JAX, with `FLAGS` if it has no flags."""
    return {"XLA_FLAGS": FLAGS, **environment}


def share_contexts(programs: int = 1000) -> None:
    """Lets JAX translate `programs` programs of a thread in one MLIR context, not in one each.

    Most programs of tests are single operations, and their contexts took a third of the time. One
    context keeps what it has seen, hence a new one now and then.
    """
    from jax._src.interpreters import mlir

    make, here = mlir.make_ir_context, threading.local()

    def make_or_share():
        if not hasattr(here, "numbers"):
            here.numbers = itertools.count()
        if next(here.numbers) % programs == 0:
            here.context = make()
        return here.context

    mlir.make_ir_context = make_or_share
