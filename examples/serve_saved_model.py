# %% [markdown]
# # Serve a model over HTTP
#
# An exported SavedModel holds everything from pixels to probabilities, so a server needs only
# TensorFlow, neither vit_keras nor Keras. The server in this notebook has forty lines and accepts
# the requests of TensorFlow Serving, which can replace it.

# %%
# %pip install -q "vit-keras[export,jax]"
import os

os.environ.setdefault("KERAS_BACKEND", "jax")  # or "tensorflow", or "torch"

import atexit
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import keras
import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

from vit_keras import applications, exporting

SMALL = bool(os.environ.get("SMALL"))  # a test runs the example with a small model, in seconds

# %% [markdown]
# ## Export
#
# Each exported file is compared with Keras before it is put in place. `vit-keras export MODEL` does
# the same on the command line.

# %%
folder = pathlib.Path(tempfile.mkdtemp())
if SMALL:
    model = applications.ViTmu16(input_shape=(32, 32, 3), classes=10)  # random weights
    model.get_layer("head").kernel.assign(np.random.default_rng(0).normal(size=(32, 10)))
else:
    model = applications.ViTS16(weights="augreg-imagenet")
rows = exporting.export(model, folder / "export", formats=["savedmodel"])
print(rows[0]["file"], f"differs from Keras by {rows[0]['largest_difference']:.1e} at most")

# %% [markdown]
# ## The server
#
# This is a separate script that uses `tf.saved_model.load` and Python's `http.server`. In a
# request, `instances` has one entry for each picture: its pixels from 0 to 255, as nested lists of
# rows, columns and channels.

# %%
SERVER = '''
"""python server.py SAVED_MODEL [PORT]: answers POST /v1/models/vit:predict."""

import http.server
import json
import sys

import tensorflow as tf

loaded = tf.saved_model.load(sys.argv[1])
serve = loaded.signatures["serving_default"]
((name, spec),) = serve.structured_input_signature[1].items()
MOST_BYTES = 2**26


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        if self.path != "/v1/models/vit:predict":
            return self.answer(404, {"error": f"there is nothing at {self.path}"})
        if length > MOST_BYTES:
            return self.answer(413, {"error": f"a request has {MOST_BYTES} bytes at most"})
        try:
            instances = json.loads(self.rfile.read(length))["instances"]
            images = tf.constant(instances, spec.dtype)
            (probabilities,) = serve(**{name: images}).values()
        except (KeyError, TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            shape = [None, *spec.shape[1:]]
            return self.answer(400, {"error": f"`instances` must be {shape} pixels ({error})"})
        self.answer(200, {"predictions": probabilities.numpy().tolist()})

    def answer(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


port = int(sys.argv[2]) if sys.argv[2:] else 0  # 0 takes a free one
with http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
'''
(folder / "server.py").write_text(SERVER)
command = [sys.executable, str(folder / "server.py"), str(folder / "export" / "saved_model")]
server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
atexit.register(server.kill)  # if a cell fails
address = next(line.strip() for line in server.stdout if line.startswith("http://"))
print("listens at", address)

# %% [markdown]
# ## Send a request
#
# The client crops and resizes the picture, and the exported model does everything else.

# %%
height, width = model.input_shape[1:3]
photograph = Image.fromarray(load_sample_image("flower.jpg"))
picture = np.asarray(photograph.resize((width, height), Image.Resampling.BICUBIC))


def ask(instances):
    """The status and the content of the server's answer."""
    body = json.dumps({"instances": instances}).encode()
    request = urllib.request.Request(f"{address}/v1/models/vit:predict", body)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


status, content = ask([picture.tolist()])
probabilities = np.array(content["predictions"])  # (1, classes)
inputs = applications.preprocess_input(picture[None].astype("float32"), model=model)
expected = keras.ops.convert_to_numpy(model(inputs))
print("class", probabilities.argmax(), f"with probability {probabilities.max():.2%}")
print(f"Keras' own answer differs by {np.abs(probabilities - expected).max():.1e}")

# %% [markdown]
# A request that is not a picture of the model's size is refused, and the server keeps running.

# %%
refused = ask([picture[:1].tolist()])
print(refused[0], re.sub(r"\s+", " ", refused[1]["error"])[:80])
again = ask([picture.tolist()] * 2)
server.terminate()
server.wait()

# %% [markdown]
# ## TensorFlow Serving
#
# The Docker image `tensorflow/serving` uses the same folder, accepts the same requests, and can put
# several of them into one batch. It reads the model from a folder that is named for its version:
#
#     mkdir -p models/vit && cp -r export/saved_model models/vit/1
#     docker run -p 8501:8501 -v $PWD/models:/models -e MODEL_NAME=vit tensorflow/serving
#     curl -d @request.json http://localhost:8501/v1/models/vit:predict
