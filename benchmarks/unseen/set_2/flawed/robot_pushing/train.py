import tempfile
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, random_split

from .demos import PushDataset, write_demos
from .policy import PushPolicy


def run_epoch(policy, loader, opt=None):
    total = 0.0
    with torch.set_grad_enabled(opt is not None):
        for obs, action in loader:
            loss = (policy(obs.to(memory_format=torch.channels_last)) - action).square().mean()
            if opt is not None:
                opt.zero_grad()
                loss.backward()
                opt.step()
            total += loss.item() * len(obs)
    return total / len(loader.dataset)


def main(epochs=3, batch_size=16):
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory(prefix="pushing_") as folder:
        write_demos(Path(folder))
        data = PushDataset(Path(folder))
    held_out = len(data) // 10
    train_set, test_set = random_split(data, [len(data) - held_out, held_out])
    train_loader = DataLoader(train_set, batch_size, shuffle=True)
    test_loader = DataLoader(test_set, batch_size)
    policy = PushPolicy().to(memory_format=torch.channels_last)
    opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for epoch in range(epochs):
        tic = time.time()
        mse = run_epoch(policy, train_loader, opt)
        test = run_epoch(policy, test_loader)
        print(f"epoch {epoch:2d}  train {mse:.4f}  test {test:.4f}  {time.time() - tic:.1f}s", flush=True)
