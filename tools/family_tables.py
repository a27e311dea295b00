"""Writes the tables in docs/families from the rows of the families, and in docs/weights.md.

    python -m tools.family_tables

A table stands between `<!-- family NAME -->` and `<!-- end -->`; that of `list_weights()`
between `<!-- published weights -->` and `<!-- end -->`.
"""

import pathlib
import re

from vit_keras import list_weights
from vit_keras.support.preprocessing import Resizing
from vit_keras.variants.families import FAMILIES, PLAIN

PAGES = pathlib.Path(__file__).parents[1] / "docs" / "families"
WEIGHTS = PAGES.parent / "weights.md"
PUBLISHED = re.compile(r"(<!-- published weights -->\n).*?(<!-- end -->)", re.DOTALL)
TABLE = re.compile(r"(<!-- family (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(name: str) -> str:
    """Returns the table of a family: its sizes, and what differs from the paper's model."""
    family = FAMILIES[name]
    variants = ", ".join(f"`{family.variant(size)}`" for size in family.sizes)
    sides = lambda pixels: "x".join(map(str, pixels)) if isinstance(pixels, tuple) else pixels
    different = {size: dict(arguments) for size, arguments in family.differences.items()}
    others = {size: x.pop("image_size") for size, x in different.items() if "image_size" in x}
    pixels = "".join(f"; {size}: {sides(side)}" for size, side in others.items())
    rows = {
        "paper": f"[{family.title}]({family.paper})",
        "license of the weights": family.license,
        "variants": variants,
        "image size": f"{sides({**PLAIN, **family.arguments}['image_size'])}{pixels}",
        "preprocessing": _values(family.preprocessing),
        "resizing": f"positions `{family.resizing}`, patches `{Resizing().patches}`",
        "arguments": _values(_changed(family.arguments)) or "the paper's",
    }
    for size, arguments in different.items():
        if arguments:
            rows[f"{size} only"] = _values(arguments)
    lines = [f"| {name} | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items())]
    return "\n".join(lines) + "\n"


def _changed(arguments):
    plain = {**PLAIN, "image_size": arguments.get("image_size")}  # it has its own row
    return {name: value for name, value in arguments.items() if plain.get(name, "") != value}


def _values(arguments):
    return ", ".join(f"`{name}={value!r}`" for name, value in arguments.items())


def published() -> str:
    """Returns the table of the published weights, as `list_weights()` has them."""
    sources: dict[str, int] = {}
    licensed: dict[str, list[str]] = {}
    of_variant: dict[str, list[str]] = {}
    for row in list_weights():
        facts = str(row["image_size"])
        if row["top1_percent"] is not None:
            source = sources.setdefault(row["source"], len(sources) + 1)
            facts += f": {row['top1_percent']:g}% [{source}]"
        variant = f"`{row['variant']}`"
        licensed.setdefault(row["license"], []).append(variant)
        of_variant.setdefault(variant, []).append(f"[`{row['name']}`]({row['url']}) {facts}")
    most = max(licensed, key=lambda name: len(licensed[name]))
    others = [f"{', '.join(names)}: {name}" for name, names in licensed.items() if name != most]
    lines = ["| variant | names, pixels and accuracy |", "|---|---|"]
    lines += [f"| {variant} | {'; '.join(cells)} |" for variant, cells in of_variant.items()]
    text = "; ".join(f"[{number}] {source}" for source, number in sources.items())
    lines += ["", f"Sources: {text}.", "", f"License: {most}; {'; '.join(others)}."]
    return "\n".join(lines) + "\n"


def filled(text: str) -> str:
    """Returns a page with its tables as the rows have them."""
    text = PUBLISHED.sub(lambda match: f"{match[1]}{published()}{match[2]}", text)
    return TABLE.sub(lambda match: f"{match[1]}{table(match[2])}{match[3]}", text)


def main() -> None:
    for page in (WEIGHTS, *sorted(PAGES.glob("*.md"))):
        page.write_text(filled(page.read_text()))


if __name__ == "__main__":
    main()
