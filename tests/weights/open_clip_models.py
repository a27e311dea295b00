"""Small models of OpenCLIP with random weights, and their folders."""

import json

from tests.peers import peer

TEXT = {"context_length": 9, "vocab_size": 30, "width": 16, "heads": 4, "layers": 2}
VISION = {"image_size": 16, "layers": 2, "width": 24, "patch_size": 8, "head_width": 8}


def two_towers(vision, fields, text=None):
    """A CLIP of open_clip, and its configuration."""
    open_clip, fields = peer("open_clip"), dict(fields)
    made = open_clip.model.CustomTextCLIP if fields.pop("custom", False) else open_clip.model.CLIP
    towers = {"vision_cfg": {**VISION, **vision}, "text_cfg": {**TEXT, **(text or {})}}
    config = {"embed_dim": 6, **towers, **fields}
    return randomized(made(**config)), config


def randomized(model):
    """The model with random weights, but for the scale and the bias of logits."""
    import torch

    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        if not name.startswith("logit_"):
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def written(folder, model, config):
    """A folder as open_clip writes it."""
    from safetensors.torch import save_file

    state = {name: x.contiguous() for name, x in model.state_dict().items()}
    save_file(state, folder / "open_clip_model.safetensors")
    content = {"model_cfg": config, "preprocess_cfg": {"resize_mode": "squash"}}
    (folder / "open_clip_config.json").write_text(json.dumps(content))
    return folder
