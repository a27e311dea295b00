"""Tokenizers give the ids of transformers' own, padded and cut to the tower's length."""

import json

import numpy as np
import pytest

from tests.peers import peer
from vit_keras.weights import TextTokenizer

pytestmark = pytest.mark.once
TEXTS = [
    "a photo of a cat",
    "",
    "Crème BRÛLÉE, naïve  café — «Ärger» Åse İstanbul",
    "e\u0301 and é;\tnew\nlines   and\u00a0spaces",
    "🐈‍⬛ 👩🏽‍🚀 ❤️ emoji, 東京 नमस्ते",
    "don't we'll I'm 1234.5% <|endoftext|> <eos> </s> <pad> x_y-z",
    "very long " * 30,
]


def train(kind):
    """A small tokenizer in the style of a model's, trained on the texts."""
    from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors, trainers
    from tokenizers.models import BPE, Unigram

    corpus, quiet = [text.lower() for text in TEXTS[:4]] * 3, {"show_progress": False}
    if kind == "clip":
        made, end = peer("transformers").CLIPTokenizer()._tokenizer, "<|endoftext|>"
        made.model = BPE(end_of_word_suffix="</w>", unk_token=end)
        made.post_processor = processors.RobertaProcessing(
            (end, 1), ("<|startoftext|>", 0), False, False
        )
        trainer = trainers.BpeTrainer(
            vocab_size=700,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=["<|startoftext|>", end],
            end_of_word_suffix="</w>",
            **quiet,
        )
    elif kind == "siglip2":
        special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
        special += [f"<0x{byte:02X}>" for byte in range(256)]
        made = Tokenizer(BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        made.normalizer = normalizers.Replace(" ", "▁")
        made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        made.post_processor = processors.TemplateProcessing(
            single="$A <eos>", special_tokens=[("<eos>", 1)]
        )
        trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, **quiet)
    else:
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        made = Tokenizer(Unigram())
        steps = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
        made.pre_tokenizer = pre_tokenizers.Sequence(steps)
        made.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
        )
        trainer = trainers.UnigramTrainer(
            vocab_size=90, special_tokens=special, unk_token="<unk>", **quiet
        )
    made.train_from_iterator(corpus, trainer)
    return made


CASES = {
    "clip": ("clip", {"tokenizer_class": "CLIPTokenizer"}, {}),
    "clip padded otherwise": (
        *("clip", {"tokenizer_class": "CLIPTokenizer", "pad_token": "!"}),
        {"max_position_embeddings": 20},
    ),
    "siglip2": (
        "siglip2",
        {
            "tokenizer_class": "GemmaTokenizer",
            "add_bos_token": True,
            "padding_side": "right",
            "eos_token": {"__type": "AddedToken", "content": "<eos>", "special": True},
        },
        {},
    ),
    "siglip2 on its left": ("siglip2", {"tokenizer_class": "Siglip2Tokenizer"}, {}),
    "siglip with another tokenizer": (
        "siglip",
        {"tokenizer_class": "GemmaTokenizer", "add_eos_token": True, "pad_token": "<pad>"},
        {},
    ),
    "metaclip_2": ("metaclip_2", {"tokenizer_class": "XLMRobertaTokenizer"}, {}),
    "any class": (
        "metaclip_2",
        {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "bos_token": "<new>"},
        {"max_position_embeddings": 12},
    ),
}


def write(folder, kind, settings, text):
    made = train("siglip2" if kind == "siglip" else kind)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = {"model_type": kind, "text_config": text, "vision_config": {}}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("case", CASES)
def test_ids_are_those_of_transformers(tmp_path, case):
    kind, settings, text = CASES[case]
    write(tmp_path, kind, settings, text)
    theirs = peer("transformers").AutoTokenizer.from_pretrained(tmp_path)
    tokenize = TextTokenizer(tmp_path)
    length = text.get("max_position_embeddings", 64 if "siglip" in kind else 77)
    expected = theirs(
        TEXTS, padding="max_length", truncation=True, max_length=length, return_tensors="np"
    )
    ids, mask = tokenize(TEXTS)
    np.testing.assert_array_equal(ids, expected["input_ids"])
    np.testing.assert_array_equal(mask, expected["attention_mask"])
    assert ids.dtype == "int32" and len(np.unique(ids)) > 20
    assert tokenize.full == kind.startswith("siglip")


def write_open_clip(folder, text):
    content = {"model_cfg": {"text_cfg": {"context_length": 20, **text}}}
    (folder / "open_clip_config.json").write_text(json.dumps(content))


@pytest.mark.parametrize("clean", ["whitespace", "lower", "canonicalize"])
def test_ids_are_those_of_open_clip(tmp_path, clean):
    train("metaclip_2").save(str(tmp_path / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    write_open_clip(
        tmp_path,
        {"hf_tokenizer_name": "any", "tokenizer_kwargs": {"clean": clean}, "no_causal_mask": True},
    )
    texts = [*TEXTS[:3], "don't we'll\n I'm  1234.5% [x_y-z] {}~", "  ", TEXTS[-1]]
    expected = peer("open_clip").get_tokenizer(f"local-dir:{tmp_path}")(texts)
    tokenize = TextTokenizer(tmp_path)
    np.testing.assert_array_equal(tokenize(texts)[0], expected)
    assert tokenize.full and tokenize.context_length == 20
    write_open_clip(tmp_path, {"tokenizer_mode": "clips"})
    with pytest.raises(ValueError, match="Received: tokenizer_mode in open_clip_config.json"):
        TextTokenizer(tmp_path)


def test_ids_without_the_name_of_a_tokenizer_are_those_of_openais(tmp_path):
    theirs = peer("open_clip").tokenizer.SimpleTokenizer(context_length=20)
    named = {"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}
    vocabulary = {named.get(word, word): i for word, i in theirs.encoder.items()}
    merges = list(theirs.bpe_ranks)
    made = peer("transformers").CLIPTokenizer(vocab=vocabulary, merges=merges)
    made.save_pretrained(tmp_path)
    write_open_clip(tmp_path, {})
    tokenize = TextTokenizer(tmp_path)
    np.testing.assert_array_equal(
        tokenize(TEXTS[:-2] + TEXTS[-1:])[0], theirs(TEXTS[:-2] + TEXTS[-1:])
    )
    assert not tokenize.full


def test_folders_without_a_tokenizer_are_refused(tmp_path):
    write(tmp_path, *CASES["clip"])
    path = tmp_path / "tokenizer.json"
    content = path.read_text()
    for text in (content[:-9], "[]"):
        path.write_text(text)
        with pytest.raises(ValueError, match="is damaged"):
            TextTokenizer(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"need a tokenizer.json, which .* lacks"):
        TextTokenizer(tmp_path)
