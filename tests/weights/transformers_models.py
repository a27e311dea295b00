"""Small models of transformers' classes with random weights, and what they compute."""

from tests.peers import peer
from tests.weights.builds import channels_first

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
SIZES |= {"image_size": 16, "patch_size": 4}
WITH_MLP = {**SIZES, "intermediate_size": 40}
NAFLEX = {key: value for key, value in WITH_MLP.items() if key != "image_size"}
TEXT = {"hidden_size": 8, "intermediate_size": 8, "vocab_size": 10}
TEXT |= {"num_hidden_layers": 1, "num_attention_heads": 2}


def tower(fields=WITH_MLP, **changes):
    """The configuration of two towers, the image's with changes."""
    return {"vision_config": {**fields, **changes}, "text_config": TEXT}


def build_theirs(class_name, config_name="", **fields):
    """Builds a model of transformers with random weights, all far from zero and one."""
    import torch

    transformers = peer("transformers")
    torch.manual_seed(0)
    kind = getattr(transformers, class_name)
    config = getattr(transformers, config_name or kind.config_class.__name__)(**fields)
    config.num_labels = 5
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            shift = 0.5 if parameter.ndim == 1 else 0.0
            parameter.copy_(shift + 0.25 * torch.randn_like(parameter))
    return model


def open_strictly(folder, class_name):
    """Opens a folder by a class, which must find all tensors and no others."""
    model_class = getattr(peer("transformers"), class_name)
    model, report = model_class.from_pretrained(folder, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.eval()


def vector(model, images):
    """The logits, the projection or the pooled features `(B, K)` of images of any size."""
    import torch

    name = type(model).__name__
    pixels = channels_first(images)
    arguments = {"pixel_values": pixels}
    if "Siglip2" in name:
        arguments = patches_of(pixels, model.config)
    elif "ino" not in name.lower() and pixels.shape[2] != pixels.shape[3]:
        arguments["interpolate_pos_encoding"] = True
    with torch.no_grad():
        if name in ("CLIPModel", "AltCLIPModel", "SiglipModel"):
            return model.get_image_features(**arguments).pooler_output.numpy()
        output = model(**arguments)
    for field in ("logits", "image_embeds", "pooler_output"):
        if getattr(output, field, None) is not None:
            return getattr(output, field).numpy()
    tokens = output.last_hidden_state.numpy()
    return tokens.mean(1) if name.startswith(("IJepa", "Siglip", "Idefics")) else tokens[:, 0]


def patches_of(pixels, config):
    """The arguments of SigLIP 2's NaFlex: flat patches, their mask and the grid."""
    import torch

    size = getattr(config, "vision_config", config).patch_size
    batch, channels, height, width = pixels.shape
    grid = (height // size, width // size)
    x = pixels.reshape(batch, channels, grid[0], size, grid[1], size)
    x = x.permute(0, 2, 4, 3, 5, 1).reshape(batch, grid[0] * grid[1], size * size * channels)
    return {
        "pixel_values": x,
        "pixel_attention_mask": torch.ones(x.shape[:2], dtype=torch.int32),
        "spatial_shapes": torch.tensor([grid] * batch),
    }
