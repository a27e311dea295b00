"""Classifiers from transformers' text towers give transformers' own probabilities."""

import csv
import sys

import numpy as np
import pytest
from PIL import Image

import vit_keras
from tests.helpers import assert_close, to_numpy
from tests.peers import peer
from tests.weights.test_text_towers import OTHERS, open_clip_model, write_open_clip
from vit_keras import commands, weights
from vit_keras.evaluation import open_predictor
from vit_keras.weights import TextEmbeddings, read_text_embeddings, write_text_embeddings

pytestmark = pytest.mark.on("torch")

WORDS = ["<pad>", "</s>", "<s>", "a", "photo", "of", "cat", "dog", "the", "small", "."]
TEXT = {
    "vocab_size": len(WORDS),
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 12,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
    "projection_dim": 6,
}
VISION = {**TEXT, "image_size": 16, "patch_size": 8}
TEMPLATES = ["a photo of a {} .", "the small {}"]
LABELS = ["cat", "dog", "small dog"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of a tiny CLIP and a tiny SigLIP of transformers, with a tokenizer of whole words."""
    torch, transformers = pytest.importorskip("torch"), peer("transformers")
    tower = {"text_config": TEXT, "vision_config": VISION}
    clip = transformers.CLIPConfig(**tower, projection_dim=6, logit_scale_init_value=1.5)
    siglip = transformers.SiglipConfig(
        text_config={**TEXT, "projection_size": 16}, vision_config=VISION
    )
    torch.manual_seed(0)
    made = {}
    for kind, model in (
        ("softmax", transformers.CLIPModel(clip)),
        ("sigmoid", transformers.SiglipModel(siglip)),
    ):
        for name, parameter in model.named_parameters():
            if not name.startswith("logit_"):
                torch.nn.init.normal_(parameter, std=0.3)
        if kind == "sigmoid":
            model.logit_scale.data.fill_(1.0)
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


def probabilities(kind, folder, images, texts):
    """What transformers' two towers say."""
    import torch
    import transformers

    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(
        texts,
        return_tensors="pt",
        padding="max_length" if kind == "sigmoid" else True,
        max_length=12,
    )
    masks = {} if kind == "sigmoid" else {"attention_mask": tokens["attention_mask"]}
    pixels = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    with torch.no_grad():
        output = model(input_ids=tokens["input_ids"], pixel_values=pixels, **masks)
        logits = output.logits_per_image
        return (logits.softmax(-1) if kind == "softmax" else logits.sigmoid()).numpy()


def text_features(folder, texts):
    """CLIP's embeddings of texts."""
    import torch
    import transformers

    model = transformers.CLIPTextModelWithProjection.from_pretrained(folder).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(
        texts, return_tensors="pt", padding=True
    )
    with torch.no_grad():
        return model(**tokens).text_embeds.numpy()


@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_probabilities_are_those_of_transformers(rng, tmp_path, folders, kind, capsys, monkeypatch):
    file = str(tmp_path / "pets.npz")
    line = ["labels", TEMPLATES[0], *LABELS, "--weights", str(folders[kind]), "--out", file]
    with monkeypatch.context() as absent:
        absent.setitem(sys.modules, "transformers", None)
        assert commands.main(line) == 0
    assert f"3 labels, {6 if kind == 'softmax' else 16} numbers each, for {kind}" in (
        capsys.readouterr().out
    )
    predictor, _ = open_predictor(folders[kind], labels=file)
    images = rng.normal(size=(3, 16, 16, 3)).astype("float32")
    ours = predictor.as_probabilities(to_numpy(predictor.run(images)))
    texts = [TEMPLATES[0].replace("{}", label) for label in LABELS]
    assert_close(ours, probabilities(kind, folders[kind], images, texts), rtol=1e-5)
    assert predictor.class_names == tuple(LABELS)
    assert predictor.task.row.output == kind


def test_several_templates_are_averaged_as_unit_vectors(folders):
    both = weights.embed_labels(folders["softmax"], LABELS, TEMPLATES)
    each = [
        text_features(folders["softmax"], [t.replace("{}", x) for x in LABELS]) for t in TEMPLATES
    ]
    unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)
    assert_close(both.embeddings, unit(unit(each[0]) + unit(each[1])), rtol=1e-6)
    assert np.abs(unit(each[0]) - unit(each[1])).max() > 1e-2
    assert both.model == folders["softmax"].name and both.scale == pytest.approx(np.exp(1.5))


@pytest.mark.parametrize("case", ["argmax", "last"])
def test_labels_of_open_clip_are_embedded_as_it_does(rng, tmp_path, case):
    """Of a CLIP, and of a SigLIP whose texts are lowercase and without punctuation."""
    import torch

    open_clip = peer("open_clip")
    text, vision, fields = OTHERS[case]
    named = {"hf_tokenizer_name": "any", "vocab_size": len(WORDS)}
    clean = {"tokenizer_kwargs": {"clean": "canonicalize"}} if case == "last" else {}
    theirs, config = open_clip_model({**text, **named, **clean}, vision, fields)
    write_open_clip(theirs, config, tmp_path)
    tokenizer(peer("transformers")).save_pretrained(tmp_path)
    templates = ["a photo of a {} .", "the_small , {}!"] if clean else ["a  photo of a {} ."]
    labels = ["Cat", "dog"] if clean else LABELS
    tokenize = open_clip.get_tokenizer(f"local-dir:{tmp_path}")
    ids = [tokenize([t.replace("{}", label) for t in templates]) for label in labels]
    for rows, label in zip(ids, labels):
        ours, _ = weights.TextTokenizer(tmp_path)([t.replace("{}", label) for t in templates])
        np.testing.assert_array_equal(ours, rows)
    with torch.no_grad():
        means = [theirs.encode_text(rows, normalize=True).mean(dim=0).numpy() for rows in ids]
    expected = np.stack([mean / np.linalg.norm(mean) for mean in means])
    file, photo = str(tmp_path / "pets.npz"), rng.normal(size=(2, 16, 16, 3)).astype("float32")
    line = ["labels", *templates, *labels, "--weights", str(tmp_path), "--out", file]
    commands.run(line)
    texts = read_text_embeddings(file)
    assert_close(texts.embeddings, expected, rtol=1e-5)
    assert texts.kind == ("sigmoid" if clean else "softmax")
    pixels = torch.from_numpy(photo.transpose(0, 3, 1, 2).copy())
    with torch.no_grad():
        images = theirs.encode_image(pixels, normalize=True).numpy()
        scale, bias = theirs.logit_scale.exp().item(), (theirs.logit_bias or torch.zeros(()))
    model = weights.with_text_head(vit_keras.open(tmp_path), file)
    assert_close(model(photo), scale * images @ expected.T + bias.item(), rtol=1e-5)
    if clean:  # a search compares with the projection, though there is a bias
        table, out = str(tmp_path / "features.parquet"), str(tmp_path / "nearest.csv")
        pixels = rng.integers(0, 256, (16, 16, 3), dtype="uint8")
        (tmp_path / "photos").mkdir()
        Image.fromarray(pixels).save(tmp_path / "photos" / "0.png")
        line = ["embed", str(tmp_path), str(tmp_path / "photos"), "--out", table]
        commands.run([*line, "--layer", "head"])
        commands.run(["search", "the_small dog!", table, "--out", out])
        row = weights.embed_labels(tmp_path, ["the_small dog!"]).embeddings[0]
        image = weights.image_text(tmp_path).image
        similar = to_numpy(image(image.preprocessing.normalize(pixels[None]))) @ row
        assert float(read_csv(out)[0]["similarity"]) == pytest.approx(float(similar[0]), abs=1e-5)


def test_saved_towers_keep_their_tokenizer(tmp_path, folders):
    folder, copy = folders["softmax"], tmp_path / "copy"
    weights.save(weights.image_text(folder), copy, format="huggingface")
    expected, copied = (weights.embed_labels(path, LABELS) for path in (folder, copy))
    assert_close(copied.embeddings, expected.embeddings, rtol=1e-6)


def test_pictures_are_predicted_evaluated_and_exported(rng, tmp_path, folders, capsys):
    from vit_keras import runtimes

    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(2):
            picture = Image.fromarray(rng.integers(0, 256, (20, 20, 3), dtype="uint8"))
            picture.save(tmp_path / "photos" / name / f"{i}.png")
    file, tower = str(tmp_path / "pets.npz"), str(folders["sigmoid"])
    vectors = rng.normal(size=(2, 16)).astype("float32")
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


def test_wrong_files_and_folders_are_refused(rng, tmp_path, folders):
    wide, few = tmp_path / "wide.npz", tmp_path / "few.npz"
    write_text_embeddings(wide, TextEmbeddings(("a",), np.ones((1, 99)), 1.0, model="other"))
    np.savez(few, labels=["a"], scale=1.0)
    (tmp_path / "text.npz").write_text("no archive")
    np.savez(tmp_path / "flat.npz", labels=["a"], embeddings=np.ones(3), scale=1.0)
    np.savez(tmp_path / "kind.npz", labels=["a"], embeddings=np.ones((1, 3)), scale=1.0, kind="x")
    tower = vit_keras.open(folders["softmax"])
    with pytest.raises(ValueError, match=r"wide.npz', of 'other': .*must have shape \(K, 6\)"):
        weights.with_text_head(tower, wide)
    for name, message in (
        ("few", "no embeddings. `vit-keras labels` makes such a file"),
        ("text", "is not a NumPy archive, or is damaged"),
        ("flat", r"shape \(K, E\). Received: float64 of shape \(3,\)"),
        ("kind", "`kind` must be one of 'softmax', 'sigmoid'. Received: kind='x'"),
    ):
        with pytest.raises(ValueError, match=message):
            read_text_embeddings(tmp_path / f"{name}.npz")
    with pytest.raises(FileNotFoundError, match="no file of embeddings"):
        read_text_embeddings(tmp_path / "none.npz")
    with pytest.raises(FileNotFoundError, match="which has no weights"):
        weights.embed_labels(tmp_path, ["cat"])
    with pytest.raises(ValueError, match="must be texts in which {} stands for the label"):
        weights.embed_labels(folders["softmax"], ["cat"], ["a photo"])
    vit = vit_keras.models.VisionTransformer(16, 8, 24, 1, 3, 40, 7)
    weights.save(vit, tmp_path / "vit", format="huggingface")
    with pytest.raises(ValueError, match="must hold both towers of a CLIP or SigLIP"):
        weights.embed_labels(tmp_path / "vit", ["cat"])


def read_csv(path):
    with open(path) as file:
        return [*csv.DictReader(file)]


@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_a_table_is_searched_in_words(rng, tmp_path, folders, kind):
    """By cosines of the two towers' embeddings, as transformers computes them."""
    pixels = rng.integers(0, 256, (7, 16, 16, 3), dtype="uint8")
    for i, picture in enumerate(pixels):
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.fromarray(picture).save(tmp_path / "photos" / f"{i}.png")
    layer = ["--layer", "head"] if kind == "softmax" else []
    table, out = str(tmp_path / "features.parquet"), str(tmp_path / "nearest.csv")
    embed = ["embed", str(folders[kind]), str(tmp_path / "photos"), "--out", table]
    commands.run([*embed, *layer])
    line = ["search", "a cat", "the small dog", table, "--not", "photo", "--top", "7"]
    commands.run([*line, "--out", out])
    towers = weights.image_text(folders[kind], attention_mask=True)
    tokenize = weights.TextTokenizer(folders[kind])
    ids, mask = tokenize(["a cat", "the small dog", "photo"])
    texts = to_numpy(towers.text([ids, np.ones_like(mask) if kind == "sigmoid" else mask]))
    queries = texts[:2] - texts[2]
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    images = to_numpy(towers.image(towers.image.preprocessing.normalize(pixels)))
    expected = images @ queries.T
    rows = read_csv(out)
    for number, text in enumerate(("a cat", "the small dog")):
        answers = [row for row in rows if row["query"] == text]
        similarities = [float(row["similarity"]) for row in answers]
        order = np.argsort(-expected[:, number])
        assert_close(np.array(similarities), expected[order, number], rtol=1e-5)
        assert [int(row["row"]) for row in answers] == order.tolist()
    with pytest.raises(ValueError, match=r"--not needs a text before TABLE"):
        commands.run(["search", table, "--rows", "0", "--not", "photo"])
    if kind == "softmax":
        other = str(tmp_path / "other.parquet")
        commands.run([*embed[:-1], other])
        with pytest.raises(ValueError, match="Embed the pictures with --layer head"):
            commands.run(["search", "a cat", other])
