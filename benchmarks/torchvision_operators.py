"""Declares two operators that a torchvision built for CUDA does not find in a CPU build of torch.

Import this module before torchvision or timm. Their import needs the operators; no model here does.
"""

import torch

LIBRARY = torch.library.Library(
    "torchvision", "FRAGMENT"
)  # a reference must stay, or torch removes them
for _name in ("nms", "qnms"):
    if not torch.version.cuda and not hasattr(torch.ops.torchvision, _name):
        LIBRARY.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
