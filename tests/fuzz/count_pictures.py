"""Counts what damaged pictures come to: `python -m tests.fuzz.count_pictures --seeds 40`.

Each picture is read in a process that is ended when it takes too long.
"""

import argparse
import collections
import multiprocessing
import re
import warnings

from tests.fuzz.pictures import damaged, whole_pictures, with_checksums

SECONDS = 60  # after which a picture counts as a hang
TIMES, CONSTANT_BYTES = 4, 3 * 2**29  # of memory: 16 bytes for each pixel of the bound, and some
READ, REFUSED, DIFFERENT = "read", "refused", "read differently"
UNRELATED, HANG, MEMORY = "unrelated exception", "hang or crash", "memory over the bound"
OUTCOMES = (REFUSED, READ, DIFFERENT, UNRELATED, HANG, MEMORY)


def outcome(written: bytes) -> tuple[str, str]:
    """What becomes of a picture, and why; gray is to be the gray of its colors."""
    from vit_keras.data import pillow_images

    try:
        pixels = pillow_images.read_encoded(written, 3)
        gray = pillow_images.read_encoded(written, 1)
    except ValueError as error:
        return REFUSED, str(error)
    except Exception as error:
        return UNRELATED, f"{type(error).__name__}: {error}"
    luma = (pixels @ [0.299, 0.587, 0.114])[..., None]
    is_equal = luma.shape == gray.shape and abs(luma - gray).max(initial=0) <= 1
    return (READ if is_equal else DIFFERENT), f"{pixels.shape} and {gray.shape}"


def peak_bytes():
    with open("/proc/self/status") as status:
        return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status.read())[1])


def _serve(pipe):
    warnings.simplefilter("ignore")
    for written in whole_pictures().values():
        outcome(written)
    pipe.send(None)
    while True:
        written = pipe.recv()
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        before = peak_bytes()
        result = outcome(written)
        taken = peak_bytes() - before
        bound = TIMES * len(written) + CONSTANT_BYTES
        pipe.send((MEMORY, f"{taken:,} bytes") if taken > bound else result)


class Worker:
    """A process that reads pictures, and is replaced when it hangs or crashes."""

    def __init__(self):
        self.process = None

    def __call__(self, written):
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, other = context.Pipe()
            self.process = context.Process(target=_serve, args=(other,), daemon=True)
            self.process.start()
            other.close()
            self.pipe.recv()
        self.pipe.send(written)
        try:
            if self.pipe.poll(SECONDS):
                return self.pipe.recv()
        except EOFError:
            pass
        self.process.kill()
        self.process.join()
        self.process = None
        return HANG, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=40, help="damages of each picture (40)")
    parser.add_argument("--show", action="store_true", help="print what is odd")
    options = parser.parse_args()
    worker, counts = Worker(), collections.defaultdict(collections.Counter)
    for name, data in whole_pictures().items():
        for seed in range(options.seeds):
            written = damaged(data, seed + 1000 * len(counts))
            if seed // 8 % 2:
                written = with_checksums(written)
            result, why = worker(written)
            counts[name.split()[0]][result] += 1
            if options.show and result not in (READ, REFUSED):
                print(f"{name}, seed {seed}: {result}: {why[:300]}", flush=True)
    print("| format | " + " | ".join(OUTCOMES) + " |\n|---" + "|--:" * len(OUTCOMES) + "|")
    counts["all"] = sum(counts.values(), collections.Counter())
    for name, row in counts.items():
        print(f"| {name} | " + " | ".join(str(row[result]) for result in OUTCOMES) + " |")


if __name__ == "__main__":
    main()
