"""Write a checkpoint in another project's format.

examples:
  vit-keras convert ViT-B_16.npz vit_b16.keras
  vit-keras convert runs/digits/model.keras folder --to huggingface
  vit-keras convert weights.npz out.safetensors --to timm --num_heads 12
  vit-keras convert ViT-S_16.npz pets.keras --adapters runs/pets/adapters.safetensors
  vit-keras convert model_best.pth.tar ema.safetensors --to timm --which ema
  vit-keras convert runs/digits/checkpoints/step_000000500 digits.keras
"""

import json
from collections.abc import Sequence

from vit_keras.commands import options as shared
from vit_keras.support.checks import as_tuple
from vit_keras.support.command_line import UsageError
from vit_keras.weights.formats import FILES


def parse(parser: shared.Parser, arguments: Sequence[str]) -> shared.Options:
    """Also takes arguments of VisionTransformer, such as `--num_heads 12`."""
    options, rest = parser.parse_known_args(arguments)
    if len(rest) % 2 or not all(name.startswith("--") for name in rest[::2]):
        raise UsageError(f"Arguments of the model are --NAME VALUE. Received: {' '.join(rest)}")
    options.overrides = {name[2:]: _value(text) for name, text in zip(rest[::2], rest[1::2])}
    return options


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    add("input", "IN", "file or folder of weights, or a step of a run")
    add("output", "OUT", "file; a folder if it has no suffix")
    add("--source", "FORMAT", "format of IN, if it is not detected", names=FILES)
    add("--to", "FORMAT", "format of OUT (Keras' own)", choices=FILES)
    add("--adapters", "FILE", "adapters of IN, from a run with lora.rank, to merge into OUT")
    text = "any argument of VisionTransformer, such as --num_heads 12"
    parser.add_argument_group("what IN does not hold", text)


def run(options: shared.Options) -> None:
    from vit_keras import experiments, models, runs, weights
    from vit_keras.support.files import claimed_output
    from vit_keras.training.checkpoints import is_checkpoint

    with claimed_output(options.output, "a conversion", "Wait until it ends, or give another OUT"):
        is_step = is_checkpoint(options.input)
        if (options.adapters or is_step) and (options.source or options.overrides):
            raise UsageError(
                "Runs' checkpoints and adapters take no --source and no overrides. Received: "
                f"source={options.source}, {options.overrides}. Leave these out"
            )
        if options.adapters:
            base = runs.find_weights(options.input, None)
            model = models.merge_lora(weights.open(base, adapters=options.adapters))
        elif is_step:
            model = experiments.open_checkpoint(options.input)
        else:
            model = weights.open(options.input, source=options.source, **options.overrides)
        weights.save(model, options.output, format=options.to)
    print(f"{options.output}: {model.count_params():,} parameters")


def _value(text):
    try:
        return as_tuple(json.loads(text))
    except ValueError:
        return text
