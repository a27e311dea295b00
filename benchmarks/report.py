"""The results of `benchmarks.run` as rows, a table and a plot."""

import os
import platform
import statistics

from benchmarks import gemm
from benchmarks.cases import Case, flops
from benchmarks.contenders import CONTENDERS


def rows(answers: dict, case, steps: int) -> list[dict]:
    """One row a contender.

    Ratios compare to the first contender, `of_gemm` to the matrix product of the same framework.

    Args:
        answers: `{contender: (its first answer, its answers turn by turn)}`.
        case: what was measured.
        steps: how many steps a turn had.
    """
    seconds, cpu = (
        {n: [t[kind] / steps for t in turns] for n, (_, turns) in answers.items()}
        for kind in ("seconds", "cpu_seconds")
    )
    first = next(iter(seconds))
    table = []
    for name, (start, turns) in answers.items():
        if name.startswith("gemm-"):
            continue
        step = statistics.median(seconds[name])
        table.append(
            {
                "contender": name,
                **case._asdict(),
                "step_s": step,
                "images_per_second": case.batch / step,
                "images_per_cpu_second": case.batch / statistics.median(cpu[name]),
                "first_over_this": _spread(seconds[first], seconds[name]),
                "first_over_this_cpu": _spread(cpu[first], cpu[name]),
                "gflops": _gflops(case, step),
                "of_gemm": _of_gemm(seconds[name], seconds.get(product_of(name)), case),
                "peak_gib": turns[-1]["peak_gib"],
                "added_gib": turns[-1]["peak_gib"] - start["base_gib"],  # to the libraries
                "gpu_gib": turns[-1]["gpu_gib"],
                "first_step_s": start["first_step_s"],
                "compile_s": max(0.0, start["first_step_s"] - step),
                "parameters": start["parameters"],
            }
        )
    return table


def product_of(contender: str) -> str:
    """The contender that multiplies matrices in the same framework."""
    return f"gemm-{CONTENDERS[contender].backend}"


def _spread(first, seconds) -> list[float]:
    """The smallest, the median and the largest ratio of seconds to `first`, turn by turn."""
    values = sorted(this / other for this, other in zip(seconds, first))
    return [values[0], statistics.median(values), values[-1]]


def _gflops(case, step) -> float | None:
    count = flops(case)
    return None if count is None else count / step / 1e9


def _of_gemm(seconds, product, case) -> float | None:
    """The speed as a fraction of a large product's: the median over the turns."""
    if product is None or flops(case) is None:
        return None
    speeds = (flops(case) / s * p / gemm.flops(case.precision) for s, p in zip(seconds, product))
    return statistics.median(speeds)


HEAD = (
    "| contender | model | mode | precision | batch | pixels | first ÷ this | by CPU time "
    "| s a step | images/s | images per CPU s | GFLOP/s "
    "| of GEMM | peak GiB | added GiB | GPU GiB | first step s | compile s |\n"
    "|---|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def lines(rows: list[dict]) -> str:
    """`rows` as lines of a Markdown table, to stand below `HEAD`."""
    lines = []
    for r in rows:
        low, middle, high = r["first_over_this"]
        gflops, of_gemm = (
            "" if r[name] is None else f"{r[name]:.{digits}f}"
            for name, digits in (("gflops", 0), ("of_gemm", 2))
        )
        lines.append(
            f"| {r['contender']} | {r['size']} | {r['mode']} | {r['precision']} "
            f"| {r['batch']} | {r['image_size']} "
            f"| {middle:.2f} ({low:.2f} to {high:.2f}) | {r['first_over_this_cpu'][1]:.2f} "
            f"| {r['step_s']:.3f} "
            f"| {r['images_per_second']:.2f} | {r['images_per_cpu_second']:.2f} "
            f"| {gflops} | {of_gemm} "
            f"| {r['peak_gib']:.2f} | {r['added_gib']:.2f} | {r['gpu_gib']:.2f} "
            f"| {r['first_step_s']:.1f} | {r['compile_s']:.1f} |"
        )
    return "\n".join(lines)


def machine() -> dict[str, str]:
    """The processor, the number of cores, and the versions of the installed frameworks."""
    import importlib.metadata

    versions = {}
    for package in ("keras", "tensorflow", "jax", "torch", "timm", "flax", "keras-hub"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"processor": processor(), "cores": str(os.cpu_count()), **versions}


def processor() -> str:
    """The processor's model name, where the system tells it."""
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    return platform.processor()


def plot(rows: list[dict], path) -> None:
    """Draws the images per second of every contender, one panel for each case."""
    from vit_keras.support.figures import BLUE, GRAY, new_figure, save_figure

    case_of = lambda row: tuple(row[field] for field in Case._fields)
    cases = list(dict.fromkeys(map(case_of, rows)))
    figure, axes = new_figure(7, 0.8 + 1.6 * len(cases), rows=len(cases))
    for axis, case in zip(axes[:, 0], cases):
        bars = [r for r in rows if case_of(r) == case][::-1]
        colors = [BLUE if r["contender"].startswith("ours") else GRAY for r in bars]
        axis.barh(
            [r["contender"] for r in bars], [r["images_per_second"] for r in bars], color=colors
        )
        title = "{}, {}, {}, {} images of {}²".format(*case)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("images/s")
    save_figure(figure, path)
