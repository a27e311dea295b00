"""The site of the pages is built without a warning, is whole, and fetches nothing elsewhere."""

import html
import html.parser
import json
import re
import urllib.parse

import pytest

from tests import test_public_names
from tests.helpers import ROOT, run_script
from tools.site_hooks import OUTSIDE, ROOMS, colab_link, public_names

pytestmark = pytest.mark.once
# Attributes by which a browser fetches something, and links that are only followed by readers.
FETCHED = {"src", "srcset", "data", "poster", "action"}
FOLLOWED = {"canonical", "next", "prev", "edit"}


class References(html.parser.HTMLParser):
    """Collects what a page fetches, where it leads, and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.fetched, self.linked, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = {name: value or "" for name, value in attributes}
        self.anchors |= {values.get("id"), values.get("name")}
        self.fetched += [value for name, value in values.items() if name in FETCHED]
        self.fetched += re.findall(r"url\((.*?)\)", values.get("style", ""))
        if "href" in values:
            reads = tag == "a" or values.get("rel") in FOLLOWED
            (self.linked if reads else self.fetched).append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    arguments = ["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    done = run_script(*arguments, NO_MKDOCS_2_WARNING="1")
    assert done.stdout + done.stderr == ""
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {
        path.relative_to(site).as_posix(): References(path.read_text())
        for path in site.rglob("*.html")
    }


def is_outside(address):
    return bool(urllib.parse.urlsplit(address).netloc)


def test_every_page_is_there(pages):
    sources = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    expected = [*(path.as_posix() for path in sources), *OUTSIDE]
    expected += [f"api/{room}.md" for room in ROOMS]
    assert {name.removesuffix("md") + "html" for name in expected} == pages.keys() - {"404.html"}


def test_no_page_fetches_anything_from_another_host(site, pages):
    fetched = {name: page.fetched for name, page in pages.items()}
    assert all(any("bundle" in address for address in fetched[name]) for name in fetched)
    assert not [(name, x) for name in fetched for x in fetched[name] if is_outside(x)]
    for path in site.rglob("*.css"):
        text = path.read_text()
        assert not [x for x in re.findall(r"url\(\s*[\"']?([^)]*)", text) if is_outside(x)]
        assert "@import" not in text


def test_every_link_inside_the_site_leads_somewhere(site, pages):
    missing = []
    for name, page in pages.items():
        for address in {*page.linked, *page.fetched} if name != "404.html" else ():
            parts = urllib.parse.urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (site / name).parent / urllib.parse.unquote(parts.path or name.split("/")[-1])
            target = (target / "index.html" if target.is_dir() else target).resolve()
            there = target.is_file()
            if there and parts.fragment and target.suffix == ".html":
                anchors = pages[target.relative_to(site.resolve()).as_posix()].anchors
                there = urllib.parse.unquote(parts.fragment) in anchors
            missing += [] if there else [(name, address)]
    assert not missing


def test_no_list_is_read_as_a_part_of_the_paragraph_before_it(site):
    """A list needs an empty line before it, where GitHub needs none."""
    broken = re.compile(r"<p>(?:(?!</p>).)*\n\s*(?:-|\d\.) ", re.DOTALL)
    paths = site.rglob("*.html")
    assert not [path.name for path in paths if broken.search(path.read_text())]


def test_cells_with_much_text_have_room(site):
    """The page of the recipes has cells with sentences beside cells with a word."""
    cells = re.findall(r"<td([^>]*)>(.*?)</td>", (site / "recipes.html").read_text(), re.DOTALL)
    roomy = [len(re.sub("<[^>]*>", "", text)) for tags, text in cells if "data-long" in tags]
    others = [len(re.sub("<[^>]*>", "", text)) for tags, text in cells if "data-long" not in tags]
    assert min(roomy) > max(others) and len(roomy) > 50 and len(others) > 20


EXAMPLE = re.compile(r'<details class="example".*?</details>', re.DOTALL)
BLOCK = re.compile(r'<div class="[^"]*highlight"><pre>.*?<code>(.*?)</code></pre></div>', re.DOTALL)


def test_every_example_of_the_api_is_a_block_of_code(site):
    examples = [x for path in site.glob("api/*.html") for x in EXAMPLE.findall(path.read_text())]
    quoted = [x for x in examples if "<blockquote>" in x or "&gt;&gt;&gt;" in BLOCK.sub("", x)]
    assert len(examples) > 250 and not quoted
    assert not [x for x in examples if not BLOCK.search(x)]


def test_copying_a_console_block_takes_the_commands_alone(site):
    """The button reads the visible text, and hides prompts and what was printed before it."""
    style = (site / "assets" / "site.css").read_text()
    assert ".highlight code[data-md-copying] :is(.gp, .go) { display: none; }" in style
    sources = [path.read_text() for path in (ROOT / "docs").rglob("*.md")]
    shown = [x for text in sources for x in re.findall(r"^\$ (.*)$", text, re.MULTILINE)]
    copied = []
    for path in site.glob("*.html"):
        for block in BLOCK.findall(path.read_text()):
            if '<span class="gp">$ ' in block:
                block = re.sub(r'<span class="g[po]">.*?</span>', "", block, flags=re.DOTALL)
                text = html.unescape(re.sub("<[^>]*>", "", block))
                copied += [line for line in text.splitlines() if line]
    assert len(copied) > 5 and sorted(copied) == sorted(shown)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("overfit", "your_own_pictures.html#overfitting"),
        ("unreadable picture", "data.html#unreadable-pictures"),
        ("published weights", "weights.html"),
    ],
)
def test_a_search_finds_the_page_of_a_matter(site, words, expected):
    """As the site searches: all words, by their beginnings; titles count more than texts."""
    found = []
    for part in json.loads((site / "search" / "search_index.json").read_text())["docs"]:
        title, text = (f" {part[name].lower()}" for name in ("title", "text"))
        starts = [re.compile(rf"\W{re.escape(word)}") for word in words.split()]
        if all(start.search(title + text) for start in starts):
            points = sum(100 * len(x.findall(title)) + len(x.findall(text)) for x in starts)
            found.append((points, part["location"]))
    assert expected in [place for _, place in sorted(found, reverse=True)[:3]]


@pytest.mark.parametrize(
    ("repository", "address"),
    [
        ("ann/vit", "https://colab.research.google.com/github/ann/vit/blob/main/examples/a.ipynb"),
        (None, "https://colab.research.google.com/"),
    ],
)
def test_a_notebook_opens_in_colab(repository, address, site):
    assert f"]({address})" in colab_link("examples/a.ipynb", repository)
    pages = [path.read_text() for path in site.glob("*.html")]
    notebooks = sorted(path.name for path in (ROOT / "examples").glob("*.ipynb"))
    beside = r'<a href="examples/(\w+\.ipynb)">[^<]*</a> \(<a href="https://colab\.'
    assert sorted({x for page in pages for x in re.findall(beside, page)}) == notebooks


@pytest.mark.parametrize("room", ROOMS)
def test_the_api_page_of_a_room_has_its_public_names(pages, room):
    shown = {str(anchor).rpartition(".")[2] for anchor in pages[f"api/{room}.html"].anchors}
    assert set(public_names(room)) <= shown


def test_every_room_whose_names_have_examples_has_a_page():
    assert set(test_public_names.ROOMS) <= set(ROOMS)


def test_a_broken_link_stops_the_build(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Title\n\n[A](index.md#none)\n")
    settings = (ROOT / "mkdocs.yml").read_text()
    (rules,) = re.findall(r"^validation:\n(?:  .*\n)+", settings, re.MULTILINE)
    (tmp_path / "mkdocs.yml").write_text(f"site_name: x\ntheme: mkdocs\n{rules}")
    command = ["-m", "mkdocs", "build", "--strict"]
    done = run_script(*command, cwd=tmp_path, check=False, NO_MKDOCS_2_WARNING="1")
    assert done.returncode == 1 and "index.md#none" in done.stderr
