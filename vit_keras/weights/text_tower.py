"""Embeds texts with transformers; a separate program that `text_embeddings` runs.

It imports nothing from this package, so PyTorch and another backend do not share a process.
"""

import json
import sys

import numpy as np

BATCH = 64  # texts per pass


def main(source: str, result: str) -> None:
    """Reads a job `{"folder": …, "texts": [[…], …]}`, and writes the arrays of an `.npz`."""
    sys.modules["torchvision"] = None  # type: ignore[assignment]  # transformers uses it if it can
    from transformers import AutoModel, AutoTokenizer

    with open(source, encoding="utf-8") as file:
        job = json.load(file)
    model = AutoModel.from_pretrained(job["folder"]).float().eval()
    tokenizer = AutoTokenizer.from_pretrained(job["folder"])
    flat = [text for texts in job["texts"] for text in texts]
    embedded = np.concatenate(
        [embed(model, tokenizer, flat[i : i + BATCH]) for i in range(0, len(flat), BATCH)]
    )
    embedded = embedded.reshape(len(job["texts"]), -1, embedded.shape[-1])
    sigmoid = hasattr(model, "logit_bias")
    np.savez(
        result,
        embeddings=unit(unit(embedded).mean(axis=1)).astype("float32"),
        scale=model.logit_scale.exp().item(),
        bias=model.logit_bias.item() if sigmoid else 0.0,
        kind="sigmoid" if sigmoid else "softmax",
    )


def embed(model, tokenizer, texts: list[str]) -> np.ndarray:
    """Returns the embeddings of texts, `(len(texts), E)` in float64."""
    import torch

    length = model.config.text_config.max_position_embeddings
    # SigLIP was trained on texts padded to the full length, without a mask of the padding.
    fixed = model.config.model_type.startswith("siglip")
    padding = {"padding": "max_length"} if fixed else {"padding": True}
    tokens = tokenizer(texts, truncation=True, max_length=length, return_tensors="pt", **padding)
    masks = {} if fixed else {"attention_mask": tokens["attention_mask"]}
    with torch.no_grad():
        pooled = model.text_model(input_ids=tokens["input_ids"], **masks).pooler_output
        if hasattr(model, "text_projection"):
            pooled = model.text_projection(pooled)
    return pooled.double().numpy()


def unit(x: np.ndarray) -> np.ndarray:
    """Normalizes vectors to length 1."""
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
