"""Trains for an hour while the process is killed again and again, and watches what it holds.

    KERAS_BACKEND=jax python -m benchmarks.soak --minutes 60

One run is never disturbed: a single long life, which shows whether memory, open files and threads
grow. The same run is then trained in another folder, whose process SIGKILL, SIGTERM or Ctrl-C ends
at random times, also while it compiles, evaluates, saves or exports; the same command resumes it.
When it is complete, another one follows until the time is over. All checkpoints, rows of metrics
and models that both folders have must be equal bit for bit. Only the killed runs export, so an
export that touched the training would show. The model is small and trains on the digits, with
dropout, an average of the weights and augmentation. `benchmarks.repetitions` loads and exports many
times.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

from benchmarks import process_signs
from benchmarks.soak_training import BATCH, compare, steps_per_second, updates

ROOT = pathlib.Path(__file__).parents[1]
ARGUMENTS = [
    *("--config", "digits", "--model.hidden_size", "32", "--model.num_layers", "2"),
    *("--model.num_heads", "2", "--model.mlp_dim", "64", "--model.dropout_rate", "0.2"),
    *("--batch", str(BATCH), "--eval_every", "250", "--checkpoint_every", "400"),
    *("--keep_checkpoints", "100000", "--optimizer.ema_decay", "0.99"),
    *("--kernels", "default"),  # what one run measured as faster, another may not
]
ROUND = 2000  # updates: each is evaluated, saved and, in killed runs, now and then exported
EXPORTS = 4  # of a killed run
LONG_LIFE = 0.3  # of the time, for the run that is never disturbed
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
CODES = {signal.SIGKILL: (-9,), signal.SIGTERM: (143, -15), signal.SIGINT: (130, -2)}
WARM_UP = 1000  # updates of a process: four evaluations, two checkpoints
PATIENCE = 300  # seconds that a process may take to stop


class Soak:
    """The folders of a soak, and what was seen of its processes."""

    def __init__(self, root: pathlib.Path, seed: int, longest: float):
        self.root, self.random, self.longest, self.lives = root, random.Random(seed), longest, []
        self.kills = dict.fromkeys(SIGNALS, 0)

    def start(self, folder, steps, export_every=0, more=()):
        command = [sys.executable, "-m", "benchmarks.soak_training", str(export_every)]
        command += ["train", *ARGUMENTS, "--total_steps", str(steps), "--workdir", str(folder)]
        command += more
        temporary = self.root / "temporary"  # what killed exports leave goes with it
        temporary.mkdir(exist_ok=True)
        variables = {**os.environ, "TMPDIR": str(temporary), "TF_CPP_MIN_LOG_LEVEL": "3"}
        with open(self.root / f"{folder.name}.log", "a") as log:
            options = {"stdout": log, "stderr": log, "cwd": ROOT, "env": variables}
            return subprocess.Popen(command, **options)

    def live(self, folder, steps, export_every=0, seconds=None, number=signal.SIGKILL, more=()):
        """One life of a process, which `number` ends after `seconds`; whether the run is done."""
        process = self.start(folder, steps, export_every, more)
        watch = process_signs.Watch(process.pid, lambda: updates(folder))
        began, first = time.monotonic(), updates(folder)
        try:
            code = process.wait(seconds)
            expected = (0,)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            code, expected = self._wait(process), CODES[number] + (0,)
            self.kills[number] += code != 0
        finally:
            process.kill()
            seen = watch.close()
        if code not in expected:
            log = (self.root / f"{folder.name}.log").read_text()
            raise RuntimeError(f"{folder.name} ended with {code}, not {expected}: {log[-3000:]}")
        life = {"run": folder.name, "seconds": time.monotonic() - began, "code": code}
        for name in ("files", "threads"):
            life[f"most_{name}"] = max((getattr(signs, name) for signs in seen), default=0)
        warm = [signs for signs in seen if first + WARM_UP <= signs.done < steps]
        if len(warm) >= 10:
            life |= process_signs.compare_ends(warm)
        self.lives.append(life)
        print(json.dumps(life), flush=True)
        return code == 0

    def _wait(self, process):
        """The code by which a process ends after a signal; one that does not says where it is."""
        try:
            return process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGUSR1)
            time.sleep(5)
            return "no end"

    def killed_runs(self, steps, export_every, end):
        """Kills runs until the time `end`; the first one is completed even so. Their folders."""
        folders = []
        while not folders or time.monotonic() < end - 1:
            folders.append(self.root / f"killed{len(folders)}")
            done = False
            while not done:
                left = end - time.monotonic()
                if left < 1 and len(folders) > 1:
                    break
                moment = min(self.random.uniform(3, self.longest), left)
                number = self.random.choice(SIGNALS)
                alone = {} if left < 1 else {"seconds": moment, "number": number}
                done = self.live(folders[-1], steps, export_every, **alone)
        return folders


def soak(options: argparse.Namespace, root: pathlib.Path) -> dict:
    """Runs the whole; returns the figures."""
    began, minutes, steps = time.monotonic(), options.minutes, options.steps
    all_of_it = Soak(root, options.seed, options.longest)
    if steps is None:
        all_of_it.live(root / "speed", 1000)
        seconds = minutes * 60 * (1 if options.undisturbed else LONG_LIFE)
        steps = max(int(steps_per_second(root / "speed") * seconds) // ROUND, 1) * ROUND
    straight = root / "straight"
    saves = ("--checkpoint_every", str(options.export_every)) if options.export_every else ()
    all_of_it.live(straight, steps, options.export_every, more=saves)
    long_life = all_of_it.lives[-1]
    if "resident" not in long_life:
        raise ValueError(
            f"A run must train for a minute after {WARM_UP} updates. Received: {steps} updates in "
            f"{long_life['seconds']:.0f} s. Give more `--steps`"
        )
    export_every = max(steps // EXPORTS // ROUND, 1) * ROUND
    end = began + minutes * 60
    folders = [] if options.undisturbed else all_of_it.killed_runs(steps, export_every, end)
    differ, compared = [], 0
    for folder in folders:
        names, count = compare(straight, folder)
        differ, compared = differ + names, compared + count
    exports = sum(log.read_text().count("exported at") for log in root.glob("*.log"))
    return {
        "backend": os.environ.get("KERAS_BACKEND", "tensorflow"),
        "minutes": round((time.monotonic() - began) / 60, 1),
        "steps": steps,
        "runs": len(folders),
        "complete": sum((folder / "model.keras").exists() for folder in folders),
        "kills": {signal.Signals(number).name: n for number, n in all_of_it.kills.items()},
        "exports": exports,
        "checkpoints_compared": compared,
        "differ": differ,
        "long_life": long_life,
        "lives": all_of_it.lives,
    }


def row(figures: dict) -> str:
    """A row of the table in docs/reliability.md."""
    life, kills = figures["long_life"], figures["kills"]
    span = lambda name: f"{life[name]['first']:g} → {life[name]['last']:g}"
    cells = [
        figures["backend"],
        f"{figures['minutes']:.0f}",
        f"{sum(kills.values())} ({', '.join(f'{n} {name}' for name, n in kills.items())})",
        f"{figures['steps']} x {figures['runs']}",
        str(figures["exports"]),
        f"{100 * life['resident_growth']:+.2f} %",
        f"{100 * life['anonymous_growth']:+.2f} %",
        span("files"),
        span("threads"),
        f"{figures['checkpoints_compared']} checkpoints"
        + (f", but {figures['differ']}" if figures["differ"] else ""),
    ]
    return f"| {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=60, help="how long, about (60)")
    parser.add_argument("--steps", type=int, help="updates of a run (measured)")
    parser.add_argument("--seed", type=int, default=0, help="decides the moments (0)")
    parser.add_argument("--longest", type=float, default=200, help="seconds to a kill (200)")
    parser.add_argument("--undisturbed", action="store_true", help="no kills: memory alone")
    parser.add_argument(
        "--export_every", type=int, default=0, help="updates to a save and an export, undisturbed"
    )
    parser.add_argument("--out", type=pathlib.Path, help="a JSON file of all figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root:
        figures = soak(options, pathlib.Path(root))
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1))
    print(row(figures))
    return int(bool(figures["differ"]) or not process_signs.is_flat(figures["long_life"]))


if __name__ == "__main__":
    sys.exit(main())
