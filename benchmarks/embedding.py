"""Embeds many small pictures: memory, speed, and whether a killed job ends in the same file.

    python -m benchmarks.embedding --pictures 100000 --out /tmp/embedding

makes pictures of 16x16 pixels and a tiny model, runs `vit-keras embed` once undisturbed, and once
more with SIGKILL halfway. It prints the resident memory of the first run as its parts appear.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np

from vit_keras.support.files import sha256

SIDE, CLASSES = 16, 10
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)  # of the parts, at which memory is noted


def make_pictures(folder: pathlib.Path, count: int) -> None:
    """Writes `count` noisy squares of ten colors, one folder a color."""
    from PIL import Image

    rng = np.random.default_rng(0)
    colors = rng.integers(0, 256, (CLASSES, 3))
    for k in range(CLASSES):
        (folder / f"color_{k}").mkdir(parents=True, exist_ok=True)
    for i in range(count):
        noise = rng.normal(0, 40, (SIDE, SIDE, 3))
        pixels = np.clip(colors[i % CLASSES] + noise, 0, 255).astype("uint8")
        Image.fromarray(pixels).save(folder / f"color_{i % CLASSES}" / f"{i:07}.png")


def make_model(file: pathlib.Path) -> None:
    """Writes a model of random weights with embeddings of 64 numbers."""
    from vit_keras.models import VisionTransformer
    from vit_keras.weights import save_model

    model = VisionTransformer(SIDE, 8, 64, 2, 2, 128, CLASSES, seed=0)
    save_model(model, file)


def embed(model: pathlib.Path, pictures: pathlib.Path, out: pathlib.Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "vit_keras", "embed", model, pictures, "--out", out]
    return subprocess.Popen([*map(str, command), "--batch", "64"])


def resident_mib(pid: int) -> float:
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def peak_mib(pid: int) -> float:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 2**10


def watch(process: subprocess.Popen, out: pathlib.Path, total: int, stop_at: float | None = None):
    """Waits for a job; prints memory and speed, or kills it at a share of its parts."""
    folder, began = out.with_name(f"{out.name}.parts"), None
    marks = [share for share in SHARES if share * total > len(list(folder.glob("0*.parquet")))]
    peak = 0.0
    while process.poll() is None:
        time.sleep(0.2)
        parts = len(list(folder.glob("0*.parquet"))) if folder.is_dir() else 0
        try:
            peak = peak_mib(process.pid)
        except (OSError, IndexError):  # it has just ended
            continue
        if parts and began is None:
            began = time.perf_counter(), parts
        if marks and parts >= marks[0] * total:
            print(f"{parts} of {total} parts: {resident_mib(process.pid):.0f} MiB", flush=True)
            marks.pop(0)
        if stop_at and parts >= stop_at * total:
            process.send_signal(signal.SIGKILL)
            process.wait()
            print(f"killed with {parts} of {total} parts", flush=True)
            return
    assert process.returncode == 0
    seconds, rows = time.perf_counter() - began[0], 1024 * (total - began[1])
    print(f"peak {peak:.0f} MiB; {rows / seconds:.0f} pictures a second", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=int, default=100_000)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    pictures, model = options.out / "pictures", options.out / "tiny.keras"
    if not pictures.is_dir():
        make_pictures(pictures, options.pictures)
    if not model.is_file():
        make_model(model)
    total = -(-options.pictures // 1024)
    files = [options.out / name for name in ("whole.parquet", "killed.parquet")]
    watch(embed(model, pictures, files[0]), files[0], total)
    watch(embed(model, pictures, files[1]), files[1], total, stop_at=0.5)
    watch(embed(model, pictures, files[1]), files[1], total)
    same = sha256(files[0]) == sha256(files[1])
    print(f"the killed job's file is {'the same' if same else 'ANOTHER'}")


if __name__ == "__main__":
    main()
