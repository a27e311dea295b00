"""Formats of weights, one file for each: they map names and layouts, and read no files."""

# The file of each format. Detection tries them in this order.
FILES = {
    "google": "google",
    "big_vision": "big_vision",
    "dinov3": "dinov3",
    "dino": "dino",
    "perception_encoder": "perception_encoder",
    "open_clip": "open_clip",
    "open_clip_timm": "open_clip_timm",
    "timm": "timm",
    "huggingface": "huggingface",
    "torchvision": "torchvision",
    "keras_hub": "keras_hub",
    "bit": "bit",
    "vit_keras": "native",
}
