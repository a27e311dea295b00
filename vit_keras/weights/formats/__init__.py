"""Formats of weights, one class each: they map names and layouts, and read no files."""

# The class of each format. Detection tries them in order.
FILES = {
    "huggingface": "huggingface:HuggingFace",
    "google": "google:Google",
    "big_vision": "google:BigVision",
    "dinov3": "dino:DinoV3",
    "dino": "dino:Dino",
    "perception_encoder": "open_clip:PerceptionEncoder",
    "open_clip": "open_clip:OpenClip",
    "open_clip_timm": "open_clip:OpenClipTimm",
    "timm": "timm:Timm",
    "torchvision": "torchvision:Torchvision",
    "keras_hub": "keras_hub:KerasHub",
    "bit": "google:BigTransfer",
    "vit_keras": "native:Native",
}
