"""How tests let XLA compile: most of a suite on JAX is compiling small models."""

# With little optimization, in one piece, and without the emitters of fused loops, which take the
# most: building and fitting a small ViT takes 1.9 s of a processor instead of 5.3.
FLAGS = " ".join(
    [
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        "--xla_cpu_use_fusion_emitters=false",
        "--xla_cpu_parallel_codegen_split_count=1",
    ]
)


def quick(environment: dict) -> dict:
    """The environment of a process on JAX, with `FLAGS` if it has no flags."""
    return {"XLA_FLAGS": FLAGS, **environment}
