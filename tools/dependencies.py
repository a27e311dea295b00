"""Writes the table of docs/dependencies.md: what each extra installs, and under which license.

python -m tools.dependencies
"""

import functools
import importlib.metadata
import pathlib
import re
import tomllib
import types

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "vit-keras"
ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "docs" / "dependencies.md"
TABLE = re.compile(r"(<!-- dependencies -->\n).*?(<!-- end -->)", re.DOTALL)
NOT_INSTALLED = ("coreml", "executorch")  # extras that `make` leaves out

# Licenses under which Apache-2.0 code may use a package: permissive ones, and MPL-2.0, which asks
# for changes to the package's own files alone.
ALLOWED = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC"),
        *("MIT", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Zlib"),
        *("CNRI-Python", "Apache-2.0 WITH LLVM-exception"),
    }
)
# What a package's metadata says in other words than SPDX.
SPELLINGS = {
    "2-clause BSD License": "BSD-2-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "FreeBSD": "BSD-2-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
# What the metadata leaves out, read in the package's own license files.
STATED = {
    "namex": "Apache-2.0",
    "pillow-heif": "BSD-3-Clause AND LGPL-3.0-only AND GPL-2.0-or-later",
}
# Packages under other licenses than ALLOWED, and why they may be used.
EXCEPTIONS = {
    "codespell": "is a program that `make lint` runs; nothing imports it",
    "pillow-heif": (
        "has its own code under BSD-3-Clause, but its wheels contain libheif (LGPL) and x265 "
        "(GPL), so whoever redistributes these wheels must follow the GPL. Only HEIC pictures "
        "need it"
    ),
}


@functools.cache
def _installed(name):
    """A distribution and its requirements, which take long to read."""
    distribution = importlib.metadata.distribution(name)
    return distribution, [*map(Requirement, distribution.requires or ())]


def closure(root, extras: list[str]) -> list[importlib.metadata.Distribution]:
    """The installed distributions that `root[extras]` requires, directly or through others."""
    ours = root, [*map(Requirement, root.requires or ())]
    required, todo = {}, [(*ours, extra) for extra in ("", *extras)]
    for distribution, requirements, extra in todo:  # which grows meanwhile
        for requirement in requirements:
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            name = canonicalize_name(requirement.name)
            other, others = ours if name == PROJECT else _installed(name)
            assert requirement.specifier.contains(other.version, prereleases=True), (
                f"{distribution.name} requires {requirement}. Received: {other.version}"
            )
            for key in ((name, added) for added in ("", *requirement.extras)):
                if key not in required:
                    required[key] = other
                    todo.append((other, others, key[1]))
    return [other for (_, extra), other in required.items() if other is not root and not extra]


def license_of(distribution: importlib.metadata.Distribution) -> str:
    """Returns the SPDX expression of a distribution's license, or "unknown"."""
    metadata = distribution.metadata
    if stated := STATED.get(canonicalize_name(metadata["Name"])):
        return stated
    texts = [metadata.get("License-Expression"), metadata.get("License")]
    texts += [
        line.rpartition(" :: ")[2]
        for line in metadata.get_all("Classifier") or ()
        if line.startswith("License :: OSI Approved :: ")
    ]
    found = (_spdx(text.strip().splitlines()[0], distribution) for text in texts if text)
    return next(filter(None, found), "unknown")


def _spdx(text, distribution):
    if text in ("BSD", "BSD License"):  # of which the text says how many clauses it has
        files = [file for file in distribution.files or () if "licen" in file.name.lower()]
        whole = [distribution.metadata.get("License", ""), *(file.read_text() for file in files)]
        return "BSD-3-Clause" if "endorse" in "".join(whole) else "BSD-2-Clause"
    try:
        return canonicalize_license_expression(SPELLINGS.get(text, text))
    except InvalidLicenseExpression:
        return None


def is_allowed(expression: str) -> bool:
    """Whether one of the alternatives of an SPDX expression has allowed licenses alone."""
    return any(
        all(term in ALLOWED for term in alternative.split(" AND "))
        for alternative in expression.split(" OR ")
    )


@functools.cache
def rows() -> list[tuple[str, str, list[str]]]:
    """Returns each installed package's name and license, and the extras that bring it."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {"core": extras["dependencies"], **extras["optional-dependencies"]}
    lines = [
        f'{line} {"and" if ";" in line else ";"} extra == "{extra}"'
        for extra in extras
        for line in extras[extra]
    ]
    project = types.SimpleNamespace(name=PROJECT, requires=lines, version="0")
    order = [name for name in extras if name not in (*NOT_INSTALLED, "test")]
    brought: dict[str, list[str]] = {}
    found = {}
    for extra in (*order, "test"):
        for distribution in closure(project, ["core", extra]):
            name = canonicalize_name(distribution.name)
            before = brought.setdefault(name, [])
            included = order if extra == "test" else _included(extra, extras)
            if not {"core", *included} & set(before):
                before.append(extra)
            found[name] = distribution
    return [(name, license_of(found[name]), brought[name]) for name in sorted(found)]


def _included(extra, extras):
    """The extras that an extra brings, such as data and weights of train."""
    requirements = [Requirement(line) for line in extras[extra]]
    named = {name for line in requirements if line.name == PROJECT for name in line.extras}
    return named.union(*(_included(name, extras) for name in named))


def table() -> str:
    """Returns the table of the page: the packages of the same extras and license are a row."""
    groups: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for name, expression, extras in rows():
        groups.setdefault((tuple(extras), expression), []).append(name)
    lines = [
        f"| {', '.join(f'`{extra}`' for extra in extras)} | {license} | {', '.join(names)} |"
        for (extras, license), names in sorted(groups.items())
    ]
    return "\n".join(["| comes with | license | packages |", "|---|---|---|", *lines]) + "\n"


def filled(text: str) -> str:
    """Returns the page with the table of what is installed."""
    return TABLE.sub(lambda match: f"{match[1]}{table()}{match[2]}", text)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
