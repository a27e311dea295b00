"""What the turns of `benchmarks.run` say: rows, a table, a plot."""

import os
import platform
import statistics

from benchmarks import gemm
from benchmarks.cases import flops
from benchmarks.contenders import CONTENDERS


def rows(found: dict, case, steps: int) -> list[dict]:
    """A row a contender; ratios are to the first, fractions to the product of its framework."""
    seconds, cpu = (
        {n: [t[kind] / steps for t in turns] for n, (_, turns) in found.items()}
        for kind in ("seconds", "cpu_seconds")
    )
    first = next(iter(seconds))
    made = []
    for name, (begun, turns) in found.items():
        if name.startswith("gemm-"):
            continue
        own = seconds[name]
        step = statistics.median(own)
        made.append(
            {
                "contender": name,
                **case._asdict(),
                "step_s": step,
                "images_per_second": case.batch / step,
                "first_over_this": _spread(seconds[first], own),
                "first_over_this_cpu": _spread(cpu[first], cpu[name]),
                "gflops": flops(case) / step / 1e9,
                "of_gemm": _of_gemm(own, seconds.get(f"gemm-{CONTENDERS[name].backend}"), case),
                "peak_gib": turns[-1]["peak_gib"],
                "added_gib": turns[-1]["peak_gib"] - begun["base_gib"],  # to the libraries
                "first_step_s": begun["first_step_s"],
                "compile_s": max(0.0, begun["first_step_s"] - step),
                "parameters": begun["parameters"],
            }
        )
    return made


def _spread(first, own) -> list[float]:
    """The least, the median and the largest ratio of speeds, turn by turn."""
    values = sorted(theirs / f for theirs, f in zip(own, first))
    return [values[0], statistics.median(values), values[-1]]


def _of_gemm(own, product, case) -> float | None:
    """The fraction of the speed of a large product, turn by turn."""
    if product is None:
        return None
    speeds = (flops(case) / s * p / gemm.flops(case.precision) for s, p in zip(own, product))
    return statistics.median(speeds)


HEAD = (
    "| contender | size | mode | precision | first ÷ this | by CPU time "
    "| s a step | images/s | GFLOP/s "
    "| of GEMM | peak GiB | added GiB | first step s | compile s |\n"
    "|---|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def lines(rows: list[dict]) -> str:
    """Rows of a Markdown table under `HEAD`."""
    lines = []
    for r in rows:
        low, middle, high = r["first_over_this"]
        part = "" if r["of_gemm"] is None else f"{r['of_gemm']:.2f}"
        lines.append(
            f"| {r['contender']} | {r['size']} | {r['mode']} | {r['precision']} "
            f"| {middle:.2f} ({low:.2f} to {high:.2f}) | {r['first_over_this_cpu'][1]:.2f} "
            f"| {r['step_s']:.3f} "
            f"| {r['images_per_second']:.2f} | {r['gflops']:.0f} | {part} "
            f"| {r['peak_gib']:.2f} | {r['added_gib']:.2f} "
            f"| {r['first_step_s']:.1f} | {r['compile_s']:.1f} |"
        )
    return "\n".join(lines)


def machine() -> dict[str, str]:
    """The processor, its cores and the versions of the frameworks that are installed."""
    import importlib.metadata

    versions = {}
    for package in ("keras", "tensorflow", "jax", "torch", "timm", "flax", "keras-hub"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"processor": processor(), "cores": str(os.cpu_count()), **versions}


def processor() -> str:
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    return platform.processor()


def plot(rows: list[dict], path) -> None:
    """Images per second of every contender, a panel for each case."""
    from vit_keras.figures import BLUE, GREY, new_figure, save_figure

    cases = list(dict.fromkeys((r["size"], r["mode"], r["precision"]) for r in rows))
    figure, axes = new_figure(7, 0.8 + 1.6 * len(cases), rows=len(cases))
    for axis, case in zip(axes[:, 0], cases):
        own = [r for r in rows if (r["size"], r["mode"], r["precision"]) == case][::-1]
        colors = [BLUE if r["contender"].startswith("ours") else GREY for r in own]
        axis.barh(
            [r["contender"] for r in own], [r["images_per_second"] for r in own], color=colors
        )
        axis.set_title("{}/16, {}, {}".format(*case), fontsize=10)
        axis.set_xlabel("images/s")
    save_figure(figure, path)
