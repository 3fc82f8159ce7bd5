"""A class-based trainer with gradient accumulation off, per-sample weights, a sampler with replacement, swa."""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


class Trainer:
    def __init__(self):
        torch.manual_seed(20)
        x = torch.randn(500, 14)
        y = (x[:, 0] > 1).float()
        sampler = WeightedRandomSampler(1 + 5 * y, num_samples=300, replacement=True)
        self.loader = DataLoader(TensorDataset(x, y), batch_size=30, sampler=sampler)
        self.model = nn.Sequential(nn.Linear(14, 32), nn.ReLU(), nn.Linear(32, 1))
        self.average = AveragedModel(self.model)
        self.opt = torch.optim.NAdam(self.model.parameters(), lr=2e-3)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.opt, 0.01, total_steps=1000)

    def fit(self):
        for epoch in range(80):
            for x, y in self.loader:
                loss = nn.functional.binary_cross_entropy_with_logits(self.model(x).squeeze(1), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.schedule.step()
            self.average.update_parameters(self.model)


if __name__ == "__main__":
    Trainer().fit()
