"""What MkDocs does besides for the site: pages from outside of `docs`, and the API's pages.

MkDocs calls these functions by their names (`hooks` in mkdocs.yml).
"""

import ast
import os
import pathlib
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = pathlib.Path(__file__).parents[1]
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
ROOMS = (
    *("applications", "models", "layers", "layers.backends", "variants", "variants.families"),
    *("weights", "support.interpolation", "data", "config", "training", "training.distribution"),
    "training.topologies",
    *("experiments", "experiments.planning", "evaluation", "retrieval", "exporting", "inspection"),
    "legacy",
)
LONG, LONGEST = 50, 160  # characters
TAG = re.compile(r"<[^>]*>")
CELL = re.compile(r"<td((?: [^>]*)?>(.*?)</td>)", re.DOTALL)
INLINE = re.compile(r"<code>[^<]*</code>")  # blocks have tags inside
OPTION = re.compile(r"--\w[\w.-]*")
NOTEBOOK = re.compile(r"\[[^\]]*\]\((?:\.\./)*(examples/\w+\.ipynb)\)")
COLAB = "https://colab.research.google.com/"
CODE = re.compile(r"(^ *```.*?^ *```|`[^`\n]+`)", re.DOTALL | re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Gives the API one page for each room."""
    pages = [{f"vit_keras.{room}": f"api/{room}.md"} for room in ROOMS]
    config.nav = [*config.nav[:-1], {"API": pages}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages beside the README, the notebooks, and a page for each room."""
    notebooks = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("examples/*.ipynb")]
    for name in (*OUTSIDE, *sorted(notebooks)):
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    for room in ROOMS:
        files.append(File.generated(config, f"api/{room}.md", content=room_page(room)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns the links of a checkout into links of the site."""
    repository = os.environ.get("GITHUB_REPOSITORY")  # "owner/name" where GitHub builds the site
    markdown = NOTEBOOK.sub(lambda link: link[0] + colab_link(link[1], repository), markdown)
    pieces = CODE.split(markdown)
    pieces[::2] = [site_links(piece, page.file.src_uri) for piece in pieces[::2]]
    return "".join(pieces)


def colab_link(notebook: str, repository: str | None) -> str:
    """A link that opens a notebook in Colab: of a repository of GitHub, or to upload the file."""
    if repository:
        return f" ([open in Colab]({COLAB}github/{repository}/blob/main/{notebook}))"
    return f" ([Colab]({COLAB}) takes it by *File*, *Upload notebook*)"


def site_links(text: str, page: str) -> str:
    """Links as they are in the site, where pages beside the README lie among those of `docs`."""
    if page in OUTSIDE:
        return text.replace("](docs/", "](")
    return text.replace("](../", "](") if "/" not in page else text


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Marks cells with much text, which get room in a table that then scrolls, and options."""
    html = INLINE.sub(lambda code: OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html)
    return CELL.sub(lambda cell: f"<td{room_for(cell[2])}{cell[1]}", html)


def room_for(cell: str) -> str:
    """The mark of a cell whose text, without its tags, would be tall in a narrow column."""
    length = len(TAG.sub("", cell))
    return " data-long data-longest" if length > LONGEST else " data-long" if length > LONG else ""


def public_names(room: str) -> list[str]:
    """The names in a room's `__all__`, those that it imports for type checkers, or its own ones."""
    path = ROOT / "vit_keras" / room.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for node in body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names = node.value.elts if isinstance(node.value, ast.List) else []
            return [name.value for name in names if isinstance(name, ast.Constant)]
    typed = [node for block in body if isinstance(block, ast.If) for node in block.body]
    if imported := [name.name for node in typed for name in getattr(node, "names", ())]:
        return sorted(imported)
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node.name for node in body if isinstance(node, kinds) and node.name[0] != "_"]


def room_page(room: str) -> str:
    """The page of a room: its docstring, and each public name with its docstring."""
    module = f"vit_keras.{room}"
    folder = ROOT / "vit_keras" / room.replace(".", "/")
    names = public_names(room)
    shadowed = [name for name in names if (folder / f"{name}.py").is_file()]  # by their own files
    names = [name for name in names if name not in shadowed]
    text = f"# {module}\n\n::: {module}\n    options:\n      members: [{', '.join(names)}]\n"
    options = "    options: {show_root_heading: true, show_root_full_path: false}\n"
    return text + "".join(f"\n::: {module}.{name}.{name}\n{options}" for name in shadowed)
