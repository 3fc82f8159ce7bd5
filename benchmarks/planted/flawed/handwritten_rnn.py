import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Sines(Dataset):
    def __init__(self, n, length):
        g = torch.Generator().manual_seed(0)
        phase = torch.rand(n, 1, generator=g) * 6.28
        self.freq = torch.rand(n, generator=g) * 0.5 + 0.1
        self.x = torch.sin(self.freq[:, None] * torch.arange(length) + phase)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.freq[i]


class Recurrent(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.hidden = hidden
        self.gates = nn.ModuleList(nn.Linear(inputs + hidden, hidden) for _ in range(4))

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], self.hidden)
        for t in range(x.shape[1]):  # <<
            xh = torch.cat([x[:, t], h], dim=1)  # <<
            i = torch.sigmoid(self.gates[0](xh))  # <<
            f = torch.sigmoid(self.gates[1](xh))  # <<
            g = torch.tanh(self.gates[2](xh))  # <<
            o = torch.sigmoid(self.gates[3](xh))  # <<
            c = f * c + i * g  # <<
            h = o * torch.tanh(c)  # <<
        return h


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = Recurrent(1, 96)
        self.out = nn.Linear(96, 1)

    def forward(self, x):
        return self.out(self.rnn(x.unsqueeze(-1))).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Sines(1280, 40), batch_size=64, shuffle=True)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        for i, (x, freq) in enumerate(loader):
            loss = nn.functional.mse_loss(model(x), freq)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if i % 10 == 0:
                print(f"[{epoch:>2}/{i:>3}] loss={loss.item():.5f}")


if __name__ == "__main__":
    main()
