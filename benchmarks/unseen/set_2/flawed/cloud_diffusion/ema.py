import copy

import torch


class EMA:
    """Exponential moving average of a model, buffers copied as they are."""

    def __init__(self, model, decay=0.999):
        self.decay = decay
        self.model = copy.deepcopy(model).eval()
        for p in self.model.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for name in model.state_dict():
            ours = self.model.state_dict()[name]  # <<
            theirs = model.state_dict()[name]  # <<
            if ours.dtype.is_floating_point:
                ours.lerp_(theirs, 1 - self.decay)
            else:
                ours.copy_(theirs)
