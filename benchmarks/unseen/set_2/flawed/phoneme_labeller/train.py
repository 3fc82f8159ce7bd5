import time

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from .corpus import FrameCorpus
from .model import Labeller


def frame_error(model, loader):
    model.eval()
    wrong = total = 0
    with torch.inference_mode():
        for x, y in loader:
            wrong += (model(x).argmax(-1) != y).sum().item()
            total += y.numel()
    model.train()
    return wrong / total


def fit(epochs=4, batch_size=16, lr=2e-3, seed=4):
    torch.manual_seed(seed)
    train = DataLoader(FrameCorpus(1280, 100, 40, seed=1), batch_size, shuffle=True)
    dev = DataLoader(FrameCorpus(160, 100, 40, seed=2), 80)
    model = Labeller()
    opt = torch.optim.Adam(model.parameters(), lr)
    for epoch in range(epochs):
        t0, total = time.time(), 0.0
        for i, (x, y) in enumerate(train):
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            total += loss.item()
            if i % 40 == 39:
                print(f"epoch {epoch} batch {i + 1}: {total / (i + 1):.4f}", flush=True)
        print(f"epoch {epoch}: dev FER {100 * frame_error(model, dev):.1f}%  {time.time() - t0:.1f} s")
    return model
