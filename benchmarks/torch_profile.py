"""Shows where a step's time goes in PyTorch: milliseconds by kind of operator.

    python -m benchmarks.torch_profile ours-torch timm --size S --mode train --precision fp32

Each contender is profiled on the CPU in a process of its own. Whatever is not spent on dense
products is all that another model of the same size could save.
"""

import argparse
import json
import pathlib
import subprocess
import sys

from benchmarks import cases
from benchmarks.contenders import CONTENDERS, environment

ROOT = pathlib.Path(__file__).parents[1]

OPTIMIZER = "adamw sqrt lerp addcdiv addcmul linalg_vector_norm aten::mul_ aten::div Optimizer"
KINDS = {  # the first kind of which a word occurs in the operator's name
    "attention": "scaled_dot_product aten::bmm softmax",
    "dense products": "aten::mm addmm linear_pointwise convolution",
    "GELU": "gelu",
    "layer normalization": "layer_norm",
    "optimizer": OPTIMIZER,
    "copies and casts": "copy aten::cat",
    "sums and additions": "aten::sum aten::add",
}
REST = "the rest"


def kind_of(operator: str) -> str:
    """The kind of an operator, by its name."""
    kinds = (kind for kind, names in KINDS.items() if any(n in operator for n in names.split()))
    return next(kinds, REST)


def profile_steps(name: str, case: cases.Case, steps: int) -> dict[str, float]:
    """Milliseconds per step of each kind, measured in this process."""
    from torch.profiler import ProfilerActivity, profile

    step, _ = CONTENDERS[name].make(case)
    step(2)
    with profile(activities=[ProfilerActivity.CPU]) as record:
        step(steps)
    spent = dict.fromkeys([*KINDS, REST], 0.0)
    for event in record.key_averages():
        spent[kind_of(event.key)] += event.self_cpu_time_total / 1000 / steps
    return spent


def profile_apart(name: str, case: cases.Case, steps: int) -> dict[str, float]:
    """As `profile_steps`, in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.torch_profile",
        "--json",
        name,
        "--steps",
        str(steps),
    ]
    for field, value in case._asdict().items():
        command += [f"--{field}", str(value)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(name), stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def table(columns: dict[str, dict[str, float]]) -> str:
    """A Markdown table with a column for each contender."""
    lines = [f"| ms per step | {' | '.join(columns)} |", "|---|" + "--:|" * len(columns)]
    for kind in [*KINDS, REST]:
        lines.append(f"| {kind} | {' | '.join(f'{c[kind]:.0f}' for c in columns.values())} |")
    lines.append(f"| all | {' | '.join(f'{sum(c.values()):.0f}' for c in columns.values())} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [name for name, contender in CONTENDERS.items() if contender.backend == "torch"]
    parser.add_argument("contenders", nargs="+", choices=names)
    parser.add_argument("--size", choices=cases.SIZES, default="S")
    parser.add_argument("--mode", choices=("train", "infer"), default="train")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--image_size", type=int, default=cases.IMAGE)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    case = cases.Case(*(getattr(options, field) for field in cases.Case._fields))
    if options.json:
        print(json.dumps(profile_steps(options.contenders[0], case, options.steps)))
        return
    print(table({n: profile_apart(n, case, options.steps) for n in options.contenders}))


if __name__ == "__main__":
    main()
