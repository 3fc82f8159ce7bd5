"""Makes torchvision importable where its compiled operations cannot load, as with a CPU build of torch."""

import torch

try:
    import torchvision
except (ImportError, RuntimeError):
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision

__all__ = ["torchvision"]
