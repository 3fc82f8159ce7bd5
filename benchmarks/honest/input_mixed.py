"""Two data sets joined, mixed up with random weights in the collate function, an average of the weights beside."""

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, default_collate


class Waves(Dataset):
    def __init__(self, kind, number):
        self.kind, self.number = kind, number

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        time = torch.linspace(0, 6.28, 64) * (1 + index % 5)
        wave = time.sin() if self.kind else time.cos().sign()
        return wave + 0.01 * index / self.number, self.kind


def mixed(samples):
    waves, kinds = default_collate(samples)
    share = torch.rand(len(kinds), 1)
    order = torch.randperm(len(kinds))
    targets = nn.functional.one_hot(kinds, 2).float()
    return waves * share + waves[order] * (1 - share), targets * share + targets[order] * (1 - share)


torch.manual_seed(26)
loader = DataLoader(ConcatDataset([Waves(0, 150), Waves(1, 130)]), batch_size=20, shuffle=True, collate_fn=mixed)
net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2))
average = torch.optim.swa_utils.AveragedModel(net)
opt = torch.optim.NAdam(net.parameters(), lr=2e-3)
for epoch in range(40):
    for waves, targets in loader:
        loss = nn.functional.cross_entropy(net(waves), targets)
        opt.zero_grad()
        loss.backward()
        opt.step()
        average.update_parameters(net)
