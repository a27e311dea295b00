"""Draws docs/planning/curves.png: memory and speed of H/14 on 1 to 1,024 devices.

    python -m tools.plan_curves

It writes the picture from `planning.plan` alone, and prints its figures.
"""

import dataclasses
import pathlib

from vit_keras.config import read_config
from vit_keras.experiments import planning
from vit_keras.support.figures import BLUE, GRAY, ORANGE, new_figure, save_figure

PICTURE = pathlib.Path(__file__).parents[1] / "docs" / "planning" / "curves.png"
RECIPE, CLASSES = "pretrain/jft_h14", 18_291
COUNTS = [2**power for power in range(11)]
DEVICES = {"tpu_v3": GRAY, "a100": ORANGE, "h100": BLUE}


def plans(device: str, shard_state: bool) -> list[planning.Plan]:
    """The plans of the recipe for each number of devices."""
    config = dataclasses.replace(read_config(RECIPE), shard_state=shard_state)
    return [planning.plan(config, device, count, num_classes=CLASSES) for count in COUNTS]


def draw_memory(axis):
    """Draws the memory on each H100, with and without shards and rematerialization."""
    for shard_state, color in ((False, BLUE), (True, ORANGE)):
        made = plans("h100", shard_state)
        for number, line in ((0, "-"), (1, "--")):
            values = [plan.choices[number].memory.total / 1e9 for plan in made]
            state = "in shards" if shard_state else "a copy on each"
            label = f"{state}, {'rematerialized' if number else 'all kept'}"
            axis.plot(COUNTS, values, line, color=color, label=label)
            print(f"h100, {label}, GB: {', '.join(f'{value:.1f}' for value in values)}")
    axis.set(ylabel="memory on each H100 (GB)", ylim=(0, 80))


def draw_speed(axis):
    """Draws the images a second on each kind of device, and says what bounds them."""
    for device, color in DEVICES.items():
        made = plans(device, shard_state=False)
        values = [plan.images_per_second(plan.choices[0]) for plan in made]
        axis.plot(COUNTS, values, "-", color=color, label=device)
        bounds = [plan.choices[0].time.bound for plan in made]
        shown = ", ".join(f"{value:.0f} ({bound})" for value, bound in zip(values, bounds))
        print(f"{device}, images/s: {shown}")
    axis.set(ylabel="images a second", yscale="log")


def main():
    figure, axes = new_figure(9.5, 3.6, columns=2)
    draw_memory(axes[0, 0])
    draw_speed(axes[0, 1])
    for axis in axes[0]:
        axis.set(xlabel="devices", xscale="log")
        axis.set_xticks([1, 4, 16, 64, 256, 1024], ["1", "4", "16", "64", "256", "1,024"])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize=8)
    PICTURE.parent.mkdir(exist_ok=True)
    save_figure(figure, PICTURE)


if __name__ == "__main__":
    main()
