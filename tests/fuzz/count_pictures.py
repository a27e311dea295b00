"""Counts what damaged pictures come to: `python -m tests.fuzz.count_pictures --seeds 40`.

Each picture is read by the decoder of training and by that of prediction, in a process of its own
that is ended when it takes too long.
"""

import argparse
import collections
import multiprocessing
import os
import re
import warnings

from tests.fuzz.pictures import damaged, whole_pictures, with_checksums

SECONDS = 60  # after which a picture counts as a hang
TIMES, CONSTANT_BYTES = 4, 3 * 2**29  # of memory: 16 bytes for each pixel of the bound, and some
EQUAL, REFUSED, DIFFERENT = "equal", "refused", "read differently"
ONE, UNRELATED, HANG = "refused by one alone", "unrelated exception", "hang or crash"
MEMORY = "memory over the bound"
OUTCOMES = (REFUSED, EQUAL, ONE, DIFFERENT, UNRELATED, HANG, MEMORY)


def outcome(read_both, written: bytes, tolerance: int = 0) -> tuple[str, str]:
    """What both decoders make of a picture, and why."""
    answers = read_both(written)
    errors = [answer for answer in answers if isinstance(answer, Exception)]
    text = " | ".join(f"{type(error).__name__}: {error}" for error in errors)
    if not all(isinstance(error, ValueError) for error in errors):
        return UNRELATED, text
    if errors:
        return (REFUSED if len(errors) == 2 else ONE), text
    first, second = (answer.astype(int) for answer in answers)
    if first.shape != second.shape:
        return DIFFERENT, f"{first.shape} and {second.shape}"
    difference = abs(first - second).max(initial=0)
    return (EQUAL if difference <= tolerance else DIFFERENT), f"by {difference}"


def both_readers():
    """A function that reads a picture twice: the pixels or the error of each decoder."""
    import tensorflow as tf

    from vit_keras.data import pillow_images, tf_images

    decode = tf.function(
        lambda data: tf_images.decode(data, 3), input_signature=[tf.TensorSpec((), tf.string)]
    )

    def by_tensorflow(written):
        try:
            return decode(tf.constant(written)).numpy()
        except tf_images.FAULTS as error:
            return ValueError(tf_images.fault_message("a", error))

    def by_pillow(written):
        try:
            return pillow_images.read_encoded(written, 3)
        except Exception as error:
            return error

    return lambda written: [by_tensorflow(written), by_pillow(written)]


def peak_bytes():
    with open("/proc/self/status") as status:
        return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status.read())[1])


def _serve(pipe):
    warnings.simplefilter("ignore")
    read_both = both_readers()
    for written in whole_pictures().values():
        read_both(written)
    pipe.send(None)
    while True:
        written, tolerance = pipe.recv()
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        before = peak_bytes()
        result = outcome(read_both, written, tolerance)
        taken = peak_bytes() - before
        bound = TIMES * len(written) + CONSTANT_BYTES
        pipe.send((MEMORY, f"{taken:,} bytes") if taken > bound else result)


class Worker:
    """A process that reads pictures, and is replaced when it hangs or crashes."""

    def __init__(self):
        self.process = None

    def __call__(self, written, tolerance=0):
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, other = context.Pipe()
            self.process = context.Process(target=_serve, args=(other,), daemon=True)
            self.process.start()
            other.close()
            self.pipe.recv()
        self.pipe.send((written, tolerance))
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
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    worker, counts = Worker(), collections.defaultdict(collections.Counter)
    for name, data in whole_pictures().items():
        for seed in range(options.seeds):
            written = damaged(data, seed + 1000 * len(counts))
            if seed // 8 % 2:
                written = with_checksums(written)
            result, why = worker(written, int(name.startswith("webp")))
            counts[name.split()[0]][result] += 1
            if options.show and result not in (EQUAL, REFUSED):
                print(f"{name}, seed {seed}: {result}: {why[:300]}", flush=True)
    print("| format | " + " | ".join(OUTCOMES) + " |\n|---" + "|--:" * len(OUTCOMES) + "|")
    counts["all"] = sum(counts.values(), collections.Counter())
    for name, row in counts.items():
        print(f"| {name} | " + " | ".join(str(row[result]) for result in OUTCOMES) + " |")


if __name__ == "__main__":
    main()
