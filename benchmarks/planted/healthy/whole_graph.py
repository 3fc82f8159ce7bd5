"""Semi-supervised node classification: one step is one pass over the whole graph."""
import argparse

import torch
import torch.nn as nn


class GraphLayer(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.own, self.message = nn.Linear(fan_in, fan_out), nn.Linear(fan_in, fan_out, bias=False)

    def forward(self, x, source, target, degree):
        gathered = torch.zeros(x.shape[0], x.shape[1]).index_add(0, target, x[source])
        return self.own(x) + self.message(gathered / degree)


class GraphNet(nn.Module):
    def __init__(self, features, classes, width=96):
        super().__init__()
        self.layers = nn.ModuleList([GraphLayer(features, width), GraphLayer(width, width)])
        self.out = nn.Linear(width, classes)

    def forward(self, x, *graph):
        for layer in self.layers:
            x = torch.relu(layer(x, *graph))
        return self.out(nn.functional.dropout(x, 0.3, self.training))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4000)
    args = parser.parse_args()
    torch.manual_seed(0)
    nodes, edges = 2000, 12000
    source, target = torch.randint(0, nodes, (2, edges))
    x = torch.randn(nodes, 48)
    y = x[:, :6].argmax(1)
    degree = torch.bincount(target, minlength=nodes).clamp_min(1).unsqueeze(1)
    known = torch.rand(nodes) < 0.3
    model = GraphNet(48, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
    for epoch in range(args.epochs):
        model.train()
        logits = model(x, source, target, degree)
        loss = nn.functional.cross_entropy(logits[known], y[known])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 100 == 0:
            model.eval()
            with torch.no_grad():
                guess = model(x, source, target, degree).argmax(1)
            print(f"epoch {epoch} loss {loss.item():.4f} others {(guess == y)[~known].float().mean().item():.3f}")


if __name__ == "__main__":
    main()
