"""What `predict` should write, and what it has written: paths, classes and probabilities."""

import base64
import html.parser
import io
import json
import re

import keras
import numpy as np
from PIL import Image

import vit_keras
from vit_keras import data


def expected(model_file, paths):
    """Class probabilities, computed by the model itself."""
    model = vit_keras.open(model_file)
    images = [
        data.normalize(
            data.resize(data.read_image(path, 3), (16, 16), model.preprocessing),
            model.preprocessing,
        )
        for path in paths
    ]
    logits = keras.ops.convert_to_numpy(model(np.stack(images)))
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def read_table(text):
    rows = [re.fullmatch(r"(.*\.png): (.*)", line).groups() for line in text.splitlines()]
    classes = [re.findall(r"(.+?) ([\d.]+)%(?:, |$)", answer) for _, answer in rows]
    return [(path, [(c, float(p) / 100) for c, p in row]) for (path, _), row in zip(rows, classes)]


def read_columns(rows, top):
    """Rows of a CSV or Parquet file as paths with their classes."""
    ranked = [f"{name}_{k}" for k in range(1, top + 1) for name in ("class", "probability")]
    assert list(rows[0]) == ["path", *ranked, "error"]
    return [
        (
            row["path"],
            [
                (row[f"class_{k}"], np.float32(row[f"probability_{k}"]))
                for k in range(1, top + 1)
                if row[f"class_{k}"]
            ],
        )
        for row in rows
    ]


def read_lines(text):
    rows = map(json.loads, text.splitlines())
    return [
        (row["path"], [(c["name"], np.float32(c["probability"])) for c in row["classes"]])
        for row in rows
    ]


class Page(html.parser.HTMLParser):
    """The figures of a page: path, name, classes, other text, and images."""

    def __init__(self, text):
        super().__init__()
        self.figures, self.tag, self.scripts = [], None, 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes, self.tag = dict(attributes), tag
        self.scripts += tag == "script"
        if tag == "figure":
            self.figures.append({**attributes, "classes": [], "images": [], "p": "", "b": ""})
        elif tag == "b":
            self.figures[-1]["path"] = attributes["title"]
        elif tag == "img":
            self.figures[-1]["images"].append(attributes)
        elif tag == "li":
            self.figures[-1]["classes"].append(["", None])
        elif tag == "data":
            self.figures[-1]["classes"][-1][1] = np.float32(attributes["value"])

    def handle_endtag(self, tag):
        self.tag = None

    def handle_data(self, text):
        if self.tag == "span":
            self.figures[-1]["classes"][-1][0] += text
        elif self.tag in ("b", "p"):
            self.figures[-1][self.tag] += text


def pixels_of(image):
    """The pixels of an image that a page holds."""
    kind, _, text = image["src"].partition(";base64,")
    assert kind in ("data:image/jpeg", "data:image/png")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))).astype("float64")
