"""Classifiers from transformers' text towers give transformers' own probabilities."""

import csv
import sys

import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close, to_numpy, write_picture
from tests.peers import peer
from tests.weights.builds import channels_first
from tests.weights.open_clip_models import two_towers, written
from tests.weights.test_text_towers import OTHERS
from tests.weights.test_text_towers import build as build_towers
from vit_keras import commands, runtimes, weights
from vit_keras.evaluation import open_predictor
from vit_keras.weights import TextEmbeddings, read_text_embeddings, write_text_embeddings

pytestmark = pytest.mark.on("torch")
torch = pytest.importorskip("torch")

WORDS = ["<pad>", "</s>", "<s>", "a", "photo", "of", "cat", "dog", "the", "small", "."]
TEXT = {"vocab_size": len(WORDS), "max_position_embeddings": 12, "num_hidden_layers": 1}
TEXT |= {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
TEMPLATES = ["a photo of a {} .", "the small {}"]
LABELS = ["cat", "dog", "small dog"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of a tiny CLIP and a tiny SigLIP of transformers, with a tokenizer of whole words."""
    transformers = peer("transformers")
    made = {}
    for kind, model in (
        ("softmax", build_towers("CLIP", TEXT, {}, {"projection_dim": 6})),
        ("sigmoid", build_towers("Siglip", {**TEXT, "projection_size": 12}, {}, {})),
    ):
        if kind == "sigmoid":
            model.logit_bias.data.fill_(-0.5)
        folder = made[kind] = tmp_path_factory.mktemp(kind)
        model.save_pretrained(folder)
        tokenizer(transformers).save_pretrained(folder)
    return made


def tokenizer(transformers):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>")
    fast = Tokenizer(words)
    fast.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 1)]
    )
    special = {"pad_token": "<pad>", "eos_token": "</s>", "bos_token": "<s>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=fast, **special)


def computed(kind, folder, images, texts):
    """What transformers' two towers say: probabilities, and the embeddings of texts."""
    transformers = peer("transformers")
    model = transformers.AutoModel.from_pretrained(folder).eval()
    padding = "max_length" if kind == "sigmoid" else True
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(
        texts, return_tensors="pt", padding=padding, max_length=12
    )
    masks = {} if kind == "sigmoid" else {"attention_mask": tokens["attention_mask"]}
    with torch.no_grad():
        pixels = channels_first(images)
        output = model(input_ids=tokens["input_ids"], pixel_values=pixels, **masks)
    logits = output.logits_per_image
    values = logits.softmax(-1) if kind == "softmax" else logits.sigmoid()
    return values.numpy(), output.text_embeds.numpy()


@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_probabilities_are_those_of_transformers(rng, tmp_path, folders, kind, capsys, monkeypatch):
    file = str(tmp_path / "pets.npz")
    line = ["labels", TEMPLATES[0], *LABELS, "--weights", str(folders[kind]), "--out", file]
    with monkeypatch.context() as absent:
        absent.setitem(sys.modules, "transformers", None)
        assert commands.main(line) == 0
    assert f"3 labels, {6 if kind == 'softmax' else 12} numbers each, for {kind}" in (
        capsys.readouterr().out
    )
    predictor, _ = open_predictor(folders[kind], labels=file)
    images = rng.normal(size=(3, 16, 16, 3)).astype("float32")
    ours = predictor.as_probabilities(to_numpy(predictor.run(images)))
    texts = [TEMPLATES[0].replace("{}", label) for label in LABELS]
    assert_close(ours, computed(kind, folders[kind], images, texts)[0], rtol=1e-5)
    assert predictor.class_names == tuple(LABELS)
    assert predictor.task.row.output == kind


def embedded(rng, folder, tower, count, *layer):
    """A table of the features of random pictures, and their pixels."""
    pixels = np.stack([write_picture(folder / f"photos/{i}.png", rng) for i in range(count)])
    table = str(folder / "features.parquet")
    commands.run(["embed", str(tower), str(folder / "photos"), "--out", table, *layer])
    return table, pixels


@pytest.mark.parametrize("case", ["argmax", "last"])
def test_labels_of_open_clip_are_embedded_as_it_does(rng, tmp_path, case):
    """Of a CLIP, and of a SigLIP whose texts are lowercase and without punctuation."""
    open_clip, clean = peer("open_clip"), case == "last"
    text, vision, fields = OTHERS[case]
    named = {"hf_tokenizer_name": "any", "vocab_size": len(WORDS)}
    named |= {"tokenizer_kwargs": {"clean": "canonicalize"}} if clean else {}
    theirs, config = two_towers(vision, fields, {**text, **named})
    written(tmp_path, theirs, config)
    tokenizer(peer("transformers")).save_pretrained(tmp_path)
    templates = ["a photo of a {} .", "the_small , {}!"] if clean else ["a  photo of a {} ."]
    labels = ["Cat", "dog"] if clean else LABELS
    tokenize = open_clip.get_tokenizer(f"local-dir:{tmp_path}")
    ours = weights.TextTokenizer(tmp_path)
    texts = [[template.replace("{}", label) for template in templates] for label in labels]
    for each in texts:
        np.testing.assert_array_equal(ours(each)[0], tokenize(each))
    photo = rng.normal(size=(2, 16, 16, 3)).astype("float32")
    with torch.no_grad():
        rows = [theirs.encode_text(tokenize(each), normalize=True).mean(dim=0) for each in texts]
        expected = torch.nn.functional.normalize(torch.stack(rows), dim=1)
        products = theirs.encode_image(channels_first(photo), normalize=True) @ expected.T
        logits = theirs.logit_scale.exp() * products + (theirs.logit_bias or 0)
    file = str(tmp_path / "pets.npz")
    commands.run(["labels", *templates, *labels, "--weights", str(tmp_path), "--out", file])
    texts = read_text_embeddings(file)
    assert_close(texts.embeddings, expected.numpy(), rtol=1e-5)
    assert texts.kind == ("sigmoid" if clean else "softmax")
    model = weights.with_text_head(vit_keras.open(tmp_path), file)
    assert_close(model(photo), logits.numpy(), rtol=1e-5)


def test_the_head_computes_in_float32_beside_a_tower_of_bfloat16():
    sizes, half = (16, 8, 24, 2, 3, 40, None), {"classifier": "map", "dtype": "mixed_bfloat16"}
    tower = vit_keras.models.VisionTransformer(*sizes, **half)
    model = vit_keras.models.head_from_text(tower, np.eye(24), 1.0)
    for name in ("head", "unit_length"):
        assert model.get_layer(name).compute_dtype == "float32"


def test_saved_towers_keep_their_tokenizer(tmp_path, folders):
    folder, copy = folders["softmax"], tmp_path / "copy"
    weights.save(weights.image_text(folder), copy, format="huggingface")
    expected, copied = (weights.embed_labels(path, LABELS) for path in (folder, copy))
    assert_close(copied.embeddings, expected.embeddings, rtol=1e-6)


def test_pictures_are_predicted_evaluated_and_exported(rng, tmp_path, folders, capsys):
    for name in ("cat/0", "cat/1", "dog/0", "dog/1"):
        write_picture(tmp_path / "photos" / f"{name}.png", rng, (20, 20))
    file, tower = str(tmp_path / "pets.npz"), str(folders["sigmoid"])
    vectors = rng.normal(size=(2, 12)).astype("float32")
    texts = TextEmbeddings(("cat", "dog"), vectors, 3.0, -0.5, "softmax")
    write_text_embeddings(file, texts)
    photos = str(tmp_path / "photos")
    assert commands.main(["predict", tower, photos, "--labels", file, "--format", "csv"]) == 0
    assert "cat" in capsys.readouterr().out
    line = ["evaluate", tower, "--labels", file, "--dataset", f"folder:{photos}"]
    assert commands.main([*line, "--split", "train", "--out", str(tmp_path / "report")]) == 0
    assert (tmp_path / "report" / "report.json").is_file()
    out = tmp_path / "files"
    formats = ["--format", "litert", "--precision", "fp32", "--out", str(out)]
    assert commands.main(["export", tower, "--labels", file, *formats]) == 0
    images = rng.integers(0, 256, (1, 16, 16, 3), dtype="uint8")
    predictor, _ = open_predictor(tower, labels=file)
    prepared = predictor.preprocessing.normalize(images.astype("float32"))
    expected = predictor.as_probabilities(to_numpy(predictor.run(prepared)))
    exported = runtimes.open(str(next(out.glob("*.tflite"))))(images)
    assert_close(exported, expected, rtol=1e-5)
    assert (out / "labels.txt").read_text().split() == ["cat", "dog"]


def test_files_are_read_as_they_were_written(rng, tmp_path):
    texts = TextEmbeddings(("a", "ü, b"), rng.normal(size=(2, 3)), 2.0, -1.0, "sigmoid", "clip")
    write_text_embeddings(tmp_path / "a.npz", texts)
    again = read_text_embeddings(tmp_path / "a.npz")
    np.testing.assert_array_equal(again.embeddings, texts.embeddings.astype("float32"))
    fields = [(t.labels, t.scale, t.bias, t.kind, t.model) for t in (texts, again)]
    assert fields[0] == fields[1]
    np.savez(tmp_path / "b.npz", labels=["a"], embeddings=np.ones((1, 3)), scale=4)
    least = read_text_embeddings(tmp_path / "b.npz")
    assert (least.kind, least.bias, least.scale, least.model) == ("softmax", 0.0, 4, "")


def test_wrong_files_and_folders_are_refused(tmp_path, folders):
    np.savez(tmp_path / "few.npz", labels=["a"], scale=1.0)
    np.savez(tmp_path / "large.npz", labels=["a"], embeddings=np.full((1, 3), 1e300), scale=1.0)
    np.savez(tmp_path / "flat.npz", labels=["a"], embeddings=np.ones(3), scale=1.0)
    np.savez(tmp_path / "kind.npz", labels=["a"], embeddings=np.ones((1, 3)), scale=1.0, kind="x")
    wide = TextEmbeddings(("a",), np.ones((1, 99)), 1.0, model="other")
    write_text_embeddings(tmp_path / "wide.npz", wide)
    vit = vit_keras.models.VisionTransformer(16, 8, 24, 1, 3, 40, 7)
    weights.save(vit, tmp_path / "vit", format="huggingface")
    clip = folders["softmax"]
    head = lambda path: weights.with_text_head(vit_keras.open(clip), path)
    for call, path, message in (
        (head, "wide.npz", r"wide.npz of other': .*weight shape \(99, 1\)"),
        (read_text_embeddings, "few.npz", "few.npz' or .* incomplete, .*'embeddings'"),
        (read_text_embeddings, "flat.npz", r"\(K, E\), .* Received: float64 of shape \(3,\)"),
        (read_text_embeddings, "kind.npz", "`kind` must be one of 'softmax', 'sigmoid'"),
        (read_text_embeddings, "large.npz", "finite as float32"),
        (lambda path: weights.embed_labels(path, ["cat"]), ".", "which has no weights"),
        (lambda path: weights.embed_labels(path, ["cat"]), "vit", "must hold both towers of a"),
        (lambda path: weights.embed_labels(clip, ["cat"], ["a photo"]), "", "in which {} stands"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            call(tmp_path / path)


@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_a_table_is_searched_in_words(rng, tmp_path, folders, kind):
    """By cosines of the two towers' embeddings, as transformers computes them."""
    layer = ["--layer", "head"] if kind == "softmax" else []
    table, pixels = embedded(rng, tmp_path, folders[kind], 7, *layer)
    line = ["search", "a cat", "the small dog", table, "--not", "photo", "--top", "7"]
    commands.run([*line, "--out", out := str(tmp_path / "nearest.csv")])
    towers = weights.image_text(folders[kind], attention_mask=True)
    tokenize = weights.TextTokenizer(folders[kind])
    ids, mask = tokenize(["a cat", "the small dog", "photo"])
    texts = to_numpy(towers.text([ids, np.ones_like(mask) if kind == "sigmoid" else mask]))
    queries = texts[:2] - texts[2]
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    images = to_numpy(towers.image(towers.image.preprocessing.normalize(pixels)))
    expected = images @ queries.T
    with open(out) as file:
        rows = [*csv.DictReader(file)]
    for number, text in enumerate(("a cat", "the small dog")):
        answers = [row for row in rows if row["query"] == text]
        similarities = [float(row["similarity"]) for row in answers]
        order = np.argsort(-expected[:, number])
        # the embeddings of the texts are close to each other
        assert_close(np.array(similarities), expected[order, number], rtol=1e-4)
        assert [int(row["row"]) for row in answers] == order.tolist()
    with pytest.raises(ValueError, match=r"--not needs a text before TABLE"):
        commands.run(["search", table, "--rows", "0", "--not", "photo"])
    if kind == "softmax":
        photos, other = str(tmp_path / "photos"), str(tmp_path / "other.parquet")
        commands.run(["embed", str(folders[kind]), photos, "--out", other])
        with pytest.raises(ValueError, match="Embed the pictures with --layer head"):
            commands.run(["search", "a cat", other])
