"""The published files that `Server` serves if no others are given."""

from tests.helpers import GOLDEN
from tests.loopback import FileServer
from vit_keras.weights import lookup

ROW = lookup("B/16", "imagenet21k")
BODY = (GOLDEN / "vit_token.npz").read_bytes()  # small, in the published format
FILES = {"/" + ROW.path: BODY, "/weights/" + ROW.path: BODY}
Server = FileServer
