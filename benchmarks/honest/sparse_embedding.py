"""Matrix factorization with sparse gradients, SparseAdam, and dense biases in a second optimizer."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(10)
users, items = torch.randint(0, 200, (1200,)), torch.randint(0, 300, (1200,))
ratings = torch.randint(1, 6, (1200,)).float()


class Factors(nn.Module):
    def __init__(self):
        super().__init__()
        self.u, self.i = nn.Embedding(200, 16, sparse=True), nn.Embedding(300, 16, sparse=True)
        self.bias = nn.Parameter(torch.tensor([3.0]))

    def forward(self, u, i):
        return (self.u(u) * self.i(i)).sum(1) + self.bias


model = Factors()
sparse = torch.optim.SparseAdam([model.u.weight, model.i.weight], lr=0.01)
dense = torch.optim.SGD([model.bias], lr=0.01)
for epoch in range(60):
    for u, i, r in DataLoader(TensorDataset(users, items, ratings), batch_size=64, shuffle=True):
        loss = nn.functional.mse_loss(model(u, i), r)
        sparse.zero_grad()
        dense.zero_grad()
        loss.backward()
        sparse.step()
        dense.step()
