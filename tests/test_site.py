"""The site of the pages is built without a warning, is whole, and fetches nothing elsewhere."""

import html
import html.parser
import re
import urllib.parse

import pytest

from tests.helpers import ROOT, run_script
from tools.site_hooks import ROOMS, public_names

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


@pytest.mark.parametrize("room", ROOMS)
def test_the_api_page_of_a_room_has_its_public_names(pages, room):
    shown = {str(anchor).rpartition(".")[2] for anchor in pages[f"api/{room}.html"].anchors}
    assert set(public_names(room)) <= shown


def test_a_broken_link_stops_the_build(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Title\n\n[A](index.md#none)\n")
    settings = (ROOT / "mkdocs.yml").read_text()
    (rules,) = re.findall(r"^validation:\n(?:  .*\n)+", settings, re.MULTILINE)
    (tmp_path / "mkdocs.yml").write_text(f"site_name: x\ntheme: mkdocs\n{rules}")
    command = ["-m", "mkdocs", "build", "--strict"]
    done = run_script(*command, cwd=tmp_path, check=False, NO_MKDOCS_2_WARNING="1")
    assert done.returncode == 1 and "index.md#none" in done.stderr
