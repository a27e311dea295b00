"""Declares two operators that a torchvision built for CUDA lacks beside a CPU torch.

Import it before torchvision, or timm, whose import asks for them; no model here does.
"""

import torch

LIBRARY = torch.library.Library("torchvision", "FRAGMENT")  # kept, or it would be undone
for _name in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, _name):
        LIBRARY.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
