import torch
from torch.utils.data import DataLoader

from .data import collate_graphs, molecules
from .model import GraphNet


def fit(epochs):
    torch.manual_seed(5)
    loader = DataLoader(molecules(1536), batch_size=32, shuffle=True, collate_fn=collate_graphs)
    model = GraphNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for step, (atoms, adjacency, target) in enumerate(loader):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(atoms, adjacency), target)
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch={epoch} step={step} mse={loss.item():.5f}")
