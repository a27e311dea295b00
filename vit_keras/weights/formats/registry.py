"""The table of formats, the detection of a file's format, and the check that a format fits."""

import dataclasses
import itertools
import os
import pkgutil
import re

from vit_keras.layers.common import READ_CLASS_TOKEN, Prefix, ViTOptions, check_choice, pair
from vit_keras.models.architectures import VisionTransformerArchitecture
from vit_keras.support.checks import listed
from vit_keras.support.preprocessing import with_tuples
from vit_keras.weights.formats import FILES
from vit_keras.weights.formats.base import LEARNED, Format
from vit_keras.weights.formats.huggingface import is_part

FORMATS: dict[str, Format] = {
    name: pkgutil.resolve_name(f"{__package__}.{place}")(name) for name, place in FILES.items()
}

# What wrappers write into names, and the numbers of chunks of blocks.
WRAPPED = re.compile(
    r"_(?:orig_mod|(?:fsdp_|checkpoint_)wrapped_module)\.|(?<=\bblocks\.)\d+\.(?=\d+\.)"
)
PATCHES = re.compile("patch|conv|embeds")  # in a name that every PyTorch format has
COMPONENT = re.compile("[^.:]*[.:]")  # a colon follows the name of a dictionary
AVERAGED = re.compile(r"(?:^|[._:])(?:ema|teacher|target|momentum|averaged?|swa|shadow)(?![a-z])")
# What files hold besides an image tower, and how the names of its tensors begin.
LEFT_OUT = {
    "text tower": r"text\w*\.|text_projection|(?:params/)?txt/|logit_|token_embedding\.|"
    r"transformer\.|positional_embedding$|ln_final\.|(?:input_resol|context_len|vocab_size|attn_mask)|"
    r"(?:language_model|lm_head|multi_modal_projector)\.",
    "decoder": r"decoder(?:_\w+)?\.|decoder_pos_embed",
    "mask token": "mask_token$",
    "head of pre-training": r"(?:\w+_)?(?:dino|ibot|projection)_head\.|"
    r"head\.(?:mlp\.\d|last_layer)|(?:project|predict)or\.|prototypes\.|queue",
    "loss": r"\w*(?:loss|criterion|metric)",
}
TRAINING = re.compile(r".*?(?:optim|sched|scaler|callback|loops)|n_averaged$|opt:")
HEAD = re.compile(r"(?:heads?|fc|(?:\w+_)?classifier|(?:mlp|cls|linear)_head|linear|\d+)[.:]")
OTHER_HEAD, BESIDE = "other head: ", "beside: "  # begin the names of what no format has


def choose(
    names, source: str | None, path: str, which: str | None, config: dict
) -> tuple[Format, dict[str, str], list[str]]:
    """Chooses the format of a file, and one of the sets of weights in it.

    The prefix of a set is what precedes names of a known format.

    Args:
        names: The names of the file's tensors.
        source: The name of the format; None detects it.
        path: The path of the file, for messages.
        which: As in `weights.load`.
        config: The configuration beside the file. If it states that the image tower is part of a
            larger model, the other parts are left out.

    Returns:
        The format, `{canonical name: name in the file}`, and what the user should know about them.

    Raises:
        ValueError: If the names match no format, or not the format `source`, if there is no set
            `which`, or if the set has a tensor twice.
    """
    apart, model_type = is_part(config), config.get("model_type")
    if source is not None:
        check_choice(source, FORMATS, "source")
    rows = [*FORMATS.values()] if source is None else [FORMATS[source]]
    plain = sorted((WRAPPED.sub("", name), name) for name in names)
    sets = _sets(plain, rows, bool(source), path, apart)
    if not sets:
        kind = "no known format" if source is None else f"a format other than {source!r}"
        said = f", and config.json says model_type={model_type!r}" if model_type else ""
        raise ValueError(
            f"{path!r} holds tensors of {kind}: the first names are "
            f"{', '.join(sorted(names)[:5]) or 'nothing'}{said}. "
            f"Formats are {', '.join(map(repr, FORMATS))}"
        )
    prefix, others, remarks = _one_of(list(sets), which, path)
    row, inside = sets[prefix], [pair for pair in plain if pair[0].startswith(prefix)]
    spelled = {row.canonical(name[len(prefix) :]): old for name, old in inside}
    if len(spelled) < len(inside):
        twice = sorted({old for _, old in inside} - {*spelled.values()})
        raise ValueError(f"{path!r} has tensors twice, under old and new names: {', '.join(twice)}")
    beside = {
        _relative(name, prefix): old
        for name, old in plain
        if not name.startswith((prefix, *others)) and not TRAINING.match(name)
    }
    remarks += _leave_out(row, spelled, beside, apart)
    remarks += _take_head(row, spelled, beside)
    spelled |= {f"{BESIDE}{old}": old for old in beside.values()}
    return row, spelled, [f"{path!r} {remark}" for remark in remarks]


def _relative(name, prefix):
    """A name without the components that it shares with a prefix."""
    components = COMPONENT.findall(prefix)
    shared = _shared(COMPONENT.findall(name), components)
    return name.removeprefix("".join(components[:shared]))


def _shared(*lists):
    """The number of components with which all lists begin."""
    return len([*itertools.takewhile(lambda items: len({*items}) == 1, zip(*lists))])


def _sets(plain, rows, named, path, apart):
    """The format of each set of weights in a file, by its shortest prefix (longest if `apart`)."""
    prefixes = {""} | {
        name[: match.end()]
        for name, _ in plain
        if PATCHES.search(name)
        for match in COMPONENT.finditer(name)
    }
    sets: dict[str, Format] = {}
    for prefix in sorted(prefixes, key=lambda p: (-len(p) if apart else len(p), p)):
        if any(prefix.startswith(other) or other.startswith(prefix) for other in sets):
            continue
        held = [name.removeprefix(prefix) for name, _ in plain if name.startswith(prefix)]
        for row in rows:
            names = {*map(row.canonical, held)}
            is_known = row.admits(names) and (named or _reveals(row, plain, prefix, path))
            if is_known or row.detect(names):
                sets[prefix] = row
                break
    return sets


def _reveals(row, plain, prefix, path):
    """Whether the name of a file, or of a tensor beside a set of weights, reveals the format."""
    beside = (_relative(name, prefix) for name, _ in plain if prefix)
    return any(re.match(row.file_names, name) for name in (os.path.basename(path), *beside))


def _one_of(prefixes, which, path):
    """The prefix to load, those of the other sets, and a remark if `which` made no choice."""
    components = {prefix: COMPONENT.findall(prefix) for prefix in prefixes}
    shared = _shared(*components.values()) if len(prefixes) > 1 else 0
    labels = {p: "".join(k[shared : shared + 1]).rstrip(".:") for p, k in components.items()}
    ranked = sorted(prefixes, key=lambda p: _rank(labels[p]))
    held = ", ".join(repr(labels[p]) for p in ranked)
    if which is not None:
        exact = [p for p in ranked if which in {k.rstrip(".:") for k in components[p]}]
        averaged = [p for p in ranked if which == "ema" and AVERAGED.search(p)]
        ranked = exact or averaged
    if len(ranked) != 1 and (which or _rank(labels[ranked[0]]) == _rank(labels[ranked[1]])):
        raise ValueError(
            f"`which` must name one set of weights of {path!r} ({held}). Received: which={which!r}"
        )
    first, others = ranked[0], [p for p in prefixes if p != ranked[0]]
    remark = f"holds the weights {held}: {labels[first]!r} is loaded; `which=` chooses another"
    roots = ["".join(components[p][: shared + 1]) for p in others]
    return first, roots, [remark] if others and which is None else []


def _rank(label):
    """Raw weights first, then a teacher's, other averages and a student's."""
    average = 1 if re.search("teacher|target", label) else 2
    return 3 if "student" in label else average if AVERAGED.search(label) else 0


def _leave_out(row, spelled, beside, apart):
    """Removes what is not part of an image model; returns remarks that name it."""
    left: dict[str, list[str]] = {}
    if "attn_pool.query" in spelled:  # CoCa's, before the normalization and the projection
        pooled = [name for name in spelled if name.startswith(("attn_pool", "ln_post.", "proj"))]
        left["attention pool"] = [spelled.pop(name) for name in pooled]
    for held in (beside, spelled):
        for name in list(held):
            kinds = [what for what, names in LEFT_OUT.items() if re.match(names, name)]
            kinds = [what for what in kinds if held is beside or what != "text tower"]
            if not kinds and apart and held is beside:
                kinds = ["rest of the model"]
            ignored = held is spelled and name.startswith(row.ignored)
            if kinds and not (ignored and kinds != ["decoder"]):
                left.setdefault(kinds[0], []).append(held[name] if ignored else held.pop(name))
    said = {what: names for what, names in left.items() if apart or what != "text tower"}
    return [f"is read without its {what}: {listed(names)}" for what, names in said.items()]


def _take_head(row, spelled, beside):
    """Renames a head of one linear layer to the format's name, and any other to `OTHER_HEAD`."""
    ours = row.head[0].removesuffix(".") if row.head and row.head[0].endswith(".") else ""
    is_known = not ours or {f"{ours}.weight", f"{ours}.kernel", "head.probe"} & spelled.keys()
    inner = {k: v for k, v in spelled.items() if HEAD.match(k) and not k.startswith(row.head[1:])}
    inner = {} if is_known else inner
    outer = {k: v for k, v in beside.items() if HEAD.match(k)}
    layers = {re.split("[.:](?=[^.:]*$)", name)[0] for name in (*inner, *outer)}
    leaves = {re.split("[.:]", name)[-1] for name in (*inner, *outer)}
    is_one = len(layers) == 1 and not (is_known or (inner and outer))
    is_one &= leaves in ({"weight"}, {"weight", "bias"})
    is_theirs = bool(inner) and all(name.startswith(ours) for name in inner)
    linear = is_one and (is_theirs or row.wraps(set(spelled)))
    for held, head in ((spelled, inner), (beside, outer)):
        for name, old in head.items():
            del held[name]
            leaf = re.split("[.:]", name)[-1]
            spelled[f"{ours}.{leaf}" if linear else f"{OTHER_HEAD}{old}"] = old
    return [f"has its classifier in {listed(outer.values())}"] if linear and outer else []


# If these differ, `save` only warns.
NUMERICS = ("gelu", "layer_norm_epsilon", "classifier_activation")


def check_held(row: Format, arch, model, config: dict) -> None:
    """Checks that a format can hold a model, so that reading gives back the same model.

    Args:
        row: The format.
        arch: The architecture of the model.
        model: The model.
        config: The configuration that is written beside the weights.

    Raises:
        ValueError: If the format's reader refuses what is written, or takes it for another model.
    """
    if not isinstance(arch, VisionTransformerArchitecture):
        return
    refusal = f"The format {row.name!r} cannot hold this model"
    variables = {variable.path: variable for variable in model.weights}
    shapes: dict[str, tuple[int, ...]] = {}
    try:
        for link in row.links(arch, None, config):
            shapes |= link.shapes(variables)
        _, spelled, _ = choose(shapes, row.name, f"the {row.name} file", None, config)
        inferred = row.infer({name: shapes[old] for name, old in spelled.items()}, config)
        fixed = row.as_read(arch)
    except (ValueError, LookupError) as error:
        raise ValueError(f"{refusal}: {error}") from error
    told = () if config else ("image_size", "num_heads")  # the user gives them
    read = {name: getattr(arch, name) for name in ("image_size", "patch_size")}
    read |= {name: value for name, value in inferred.items() if name not in told} | fixed
    here, there = _decisive(arch.arguments), _decisive({"classifier": arch.classifier, **read})
    names = [name for name in here if name in fixed or name not in NUMERICS]
    if others := [name for name in names if here[name] != there.get(name, here[name])]:
        said = lambda values: ", ".join(f"{name}={values[name]!r}" for name in others)
        raise ValueError(
            f"{refusal}, which would be read as one with {said(there)}. Received: {said(here)}. "
            "Save it as .keras or .weights.h5, or in the format of its family"
        )


def _decisive(arguments):
    """Returns the arguments that files must agree with, in a common form."""
    options, classifier = ViTOptions.among(arguments), arguments["classifier"]
    prefix, values = Prefix.of(classifier, options), dataclasses.asdict(options)
    values["class_token"] &= classifier not in READ_CLASS_TOKEN
    values["distillation_token"] &= classifier != "distilled"
    values["pool_all_tokens"] &= prefix.count > 0
    values["layer_scale"] = options.layer_scale is not None  # files lack its first value
    values["rope"] = {**(values["rope"] or {}), "rounded": None}  # rounding hardly changes periods
    sides = zip(*(pair(arguments[name], name) for name in ("image_size", "patch_size")))
    values["crop_to_patches"] &= any(size % patch for size, patch in sides)  # else nothing is cut
    return with_tuples({**LEARNED, "resnet_layers": None, **arguments, **values})
