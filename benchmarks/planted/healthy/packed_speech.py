import argparse

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence
from torch.utils.data import DataLoader, Dataset


class Utterances(Dataset):
    def __init__(self, n):
        self.lengths = torch.randint(20, 60, (n,)).tolist()
        self.frames = [torch.randn(length, 40) for length in self.lengths]
        self.phones = [frames[:, :30].argmax(1) for frames in self.frames]

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        return self.frames[i], self.phones[i]


def pack(batch):
    batch.sort(key=lambda pair: -len(pair[0]))
    frames, phones = zip(*batch)
    return pack_sequence(frames), pack_sequence(phones)


class Recognizer(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.lstm = nn.LSTM(40, width, num_layers=2)
        self.out = nn.Linear(width, 30)

    def forward(self, packed):
        return self.out(self.lstm(packed)[0].data)


def frame_accuracy(model, loader):
    model.eval()
    hits = frames = 0
    with torch.no_grad():
        for x, y in loader:
            hits += (model(x).argmax(1) == y.data).sum().item()
            frames += len(y.data)
            lengths = pad_packed_sequence(y)[1]
            assert int(lengths.sum()) == len(y.data)
    model.train()
    return hits / frames


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(17)
    train_loader = DataLoader(Utterances(512), 16, shuffle=True, collate_fn=pack)
    valid_loader = DataLoader(Utterances(32), 16, collate_fn=pack)
    model = Recognizer()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        for x, y in train_loader:
            loss = nn.functional.cross_entropy(model(x), y.data)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f} frames {frame_accuracy(model, valid_loader):.3f}")
