"""The site of the pages is built without a warning, is whole, and fetches nothing elsewhere."""

import html.parser
import re
import urllib.parse

import pytest

from tests.helpers import run_script
from tools.site_hooks import ROOMS, public_names

pytestmark = pytest.mark.once
# Attributes by which a browser fetches something, and links that are only followed by readers.
FETCHED = {"src", "srcset", "data", "poster", "action"}
FOLLOWED = {"canonical", "next", "prev", "edit"}


class References(html.parser.HTMLParser):
    """Collects what a page fetches, and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.fetched, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = {name: value or "" for name, value in attributes}
        self.anchors |= {values.get("id"), values.get("name")}
        self.fetched += [value for name, value in values.items() if name in FETCHED]
        self.fetched += re.findall(r"url\((.*?)\)", values.get("style", ""))
        if "href" in values and tag != "a" and values.get("rel") not in FOLLOWED:
            self.fetched.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site").resolve()
    arguments = ["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    done = run_script(*arguments, NO_MKDOCS_2_WARNING="1")
    assert done.stdout + done.stderr == ""
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: References(path.read_text()) for path in site.rglob("*.html")}


def is_outside(address):
    return bool(urllib.parse.urlsplit(address).netloc)


def test_no_page_fetches_anything_from_another_host(site, pages):
    for path, page in pages.items():
        assert any("bundle" in address for address in page.fetched), path
        assert not [*filter(is_outside, page.fetched)], path
    for path in site.rglob("*.css"):
        text = path.read_text()
        assert not [*filter(is_outside, re.findall(r"url\(\s*[\"']?([^)]*)", text))], path
        assert "@import" not in text


def test_the_api_page_of_a_room_has_its_public_names(site, pages):
    for room in ROOMS:
        anchors = pages[site / "api" / f"{room}.html"].anchors
        assert {*public_names(room)} <= {str(anchor).rpartition(".")[2] for anchor in anchors}
