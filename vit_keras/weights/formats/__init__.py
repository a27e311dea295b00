"""Formats of weights, one module each: they map names and layouts, and read no files."""

# The module of each format, and its name there if not FORMAT. Detection tries them in order.
FILES = {
    "huggingface": "huggingface",
    "google": "google",
    "big_vision": "google.BIG_VISION_FORMAT",
    "dinov3": "dino.DINOV3_FORMAT",
    "dino": "dino",
    "perception_encoder": "open_clip.PE_FORMAT",
    "open_clip": "open_clip",
    "open_clip_timm": "open_clip.TIMM_FORMAT",
    "timm": "timm",
    "torchvision": "torchvision",
    "keras_hub": "keras_hub",
    "bit": "google.BIT_FORMAT",
    "vit_keras": "native",
}
