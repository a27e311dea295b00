"""Tokenizers give the ids of transformers' own, padded and cut to the tower's length."""

import json

import numpy as np
import pytest

from tests.peers import peer
from vit_keras.weights import TextTokenizer

pytestmark = pytest.mark.once
FAST = "PreTrainedTokenizerFast"
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


EOS = {"__type": "AddedToken", "content": "<eos>", "special": True}
GEMMA = {"add_bos_token": True, "padding_side": "right", "eos_token": EOS}
OTHER = {"add_eos_token": True, "pad_token": "<pad>"}
# The kind of tower, the class of the tokenizer, its settings, and the length of texts.
CASES = {
    "clip": ("clip", "CLIPTokenizer", {}, None),
    "clip padded otherwise": ("clip", "CLIPTokenizer", {"pad_token": "!"}, 20),
    "siglip2": ("siglip2", "GemmaTokenizer", GEMMA, None),
    "siglip2 on its left": ("siglip2", "Siglip2Tokenizer", {}, None),
    "siglip with another tokenizer": ("siglip", "GemmaTokenizer", OTHER, None),
    "metaclip_2": ("metaclip_2", "XLMRobertaTokenizer", {}, None),
    "any class": ("metaclip_2", FAST, {"pad_token": "<pad>", "bos_token": "<new>"}, 12),
}


def write(folder, kind, name="CLIPTokenizer", settings=None, length=None):
    made = train("siglip2" if kind == "siglip" else kind)
    made.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": name, **(settings or {})}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    text = {} if length is None else {"max_position_embeddings": length}
    config = {"model_type": kind, "text_config": text, "vision_config": {}}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("case", CASES)
def test_ids_are_those_of_transformers(tmp_path, case):
    kind, *_, length = CASES[case]
    write(tmp_path, *CASES[case])
    theirs = peer("transformers").AutoTokenizer.from_pretrained(tmp_path)
    tokenize = TextTokenizer(tmp_path)
    fill = {"padding": "max_length", "max_length": length or (64 if "siglip" in kind else 77)}
    expected = theirs(TEXTS, truncation=True, return_tensors="np", **fill)
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
    settings = {"tokenizer_class": FAST, "pad_token": "<pad>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    text = {"hf_tokenizer_name": "any", "tokenizer_kwargs": {"clean": clean}}
    write_open_clip(tmp_path, {**text, "no_causal_mask": True})
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
    texts = TEXTS[:-2] + TEXTS[-1:]
    np.testing.assert_array_equal(tokenize(texts)[0], theirs(texts))
    assert not tokenize.full


def test_folders_without_a_tokenizer_are_refused(tmp_path):
    write(tmp_path, "clip")
    path = tmp_path / "tokenizer.json"
    content = path.read_text()
    for text in (content[:-9], "[]"):
        path.write_text(text)
        with pytest.raises(ValueError, match="is damaged"):
            TextTokenizer(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"need a tokenizer.json, which .* lacks"):
        TextTokenizer(tmp_path)
