"""A model called by its forward(), another layer, workers that augment, and a weight that is no module's."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(14)


class Noisy(Dataset):
    def __len__(self):
        return 50

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(6, generator=generator) + 0.1 * torch.randn(6), index % 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 24)), nn.Linear(24, 3)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


model = Net()
tail = nn.Linear(3, 3)
sharpness = torch.zeros((), requires_grad=True)
optimizer = torch.optim.Adam([*model.parameters(), *tail.parameters(), sharpness], 1e-2, eps=1e-4)
for epoch in range(2):
    for x, y in DataLoader(Noisy(), batch_size=12, shuffle=True, num_workers=2):
        out = tail(model.forward(x)) * sharpness.exp()
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{epoch} {loss.item():.6f} {sharpness.item():.6f}")
