"""Writes dist/sbom.json: what `.venv` holds, as CycloneDX, checked against its schema.

make sbom
"""

import json
import pathlib
import re
import subprocess
import sys

from packaging.utils import canonicalize_name

from tools.dependencies import PAGE, ROOT

SCHEMA = "1.6"


def licenses_of(page: str) -> dict[str, str]:
    """Reads the SPDX expression of each package from the table of docs/dependencies.md."""
    rows = re.findall(r"^\| `.* \| ([^|]+) \| ([a-z0-9, -]+) \|$", page, re.MULTILINE)
    return {name: license for license, names in rows for name in names.split(", ")}


def completed(bom: dict, version: str, licenses: dict[str, str]) -> dict:
    """Adds what cyclonedx-py leaves out: the project's version, and licenses in other words."""
    root = {**bom["metadata"]["component"], "version": version}
    components = [
        component
        if component.get("licenses") or canonicalize_name(component["name"]) not in licenses
        else {
            **component,
            "licenses": [{"expression": licenses[canonicalize_name(component["name"])]}],
        }
        for component in bom["components"]
    ]
    return {**bom, "metadata": {**bom["metadata"], "component": root}, "components": components}


def main() -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    program = pathlib.Path(sys.executable).parent / "cyclonedx-py"
    options = ["--pyproject", "pyproject.toml", "--spec-version", SCHEMA, "--output-reproducible"]
    command = [program, "environment", ".venv/bin/python", *options]
    printed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    source = (ROOT / "vit_keras" / "__init__.py").read_text()
    (version,) = re.findall(r'^__version__ = "(.*)"$', source, re.MULTILINE)
    bom = completed(json.loads(printed.stdout), version, licenses_of(PAGE.read_text()))
    text = json.dumps(bom, indent=1, sort_keys=True) + "\n"
    if fault := JsonStrictValidator(SchemaVersion.from_version(SCHEMA)).validate_str(text):
        sys.exit(f"The list is not valid CycloneDX {SCHEMA}: {fault}")
    path = ROOT / "dist" / "sbom.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    print(f"{path.relative_to(ROOT)}: {len(bom['components'])} packages, CycloneDX {SCHEMA}")


if __name__ == "__main__":
    main()
