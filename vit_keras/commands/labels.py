"""Embed class names with a text tower, for classifiers without training.

The file turns the image tower of the same model into a classifier (docs/zero-shot.md):
`vit-keras predict MODEL photos --labels FILE`. The commands evaluate and export also take it.

examples:
  vit-keras labels "a photo of a {}" cat dog --weights clip-vit-base-patch32 --out pets.npz
  vit-keras labels "a photo of a {}" "art of a {}" --file names.txt --weights clip --out x.npz
"""

from vit_keras.commands import options as shared


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    add("texts", "TEXT", "templates, with {} in place of a label, and labels", nargs="+")
    folder = "folder of transformers or OpenCLIP with both towers and the tokenizer"
    add("--weights", "FOLDER", folder, required=True)
    add("--file", "FILE", "more labels, one per line")
    add("--out", "PATH", "the .npz file to write", shared.ending(".npz"), required=True)


def run(options: shared.Options) -> None:
    from vit_keras import weights

    templates = [text for text in options.texts if "{}" in text] or ["{}"]
    labels = [text for text in options.texts if "{}" not in text]
    if options.file:
        with open(options.file, encoding="utf-8") as file:
            labels += [line.strip() for line in file if line.strip()]
    texts = weights.embed_labels(options.weights, labels, templates)
    weights.write_text_embeddings(options.out, texts)
    templated = f" by {len(templates)} templates" if len(templates) > 1 else ""
    print(
        f"{options.out}: {len(labels)} labels{templated}, {texts.embeddings.shape[1]} numbers each,"
        f" for {texts.kind}"
    )
