import argparse
import time

import torch
from torch.utils.data import DataLoader

from .data import ELEMENTS, SolvationSet, merge
from .model import SolvationNet


def main():
    ap = argparse.ArgumentParser("solvation_graphs")
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=2e-3)
    args = ap.parse_args()

    torch.manual_seed(7)
    train = DataLoader(SolvationSet(1800, 1), batch_size=args.batch, shuffle=True, collate_fn=merge)
    test = DataLoader(SolvationSet(300, 2), batch_size=args.batch, collate_fn=merge)
    model = SolvationNet(len(ELEMENTS))
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        model.train()
        start, seen, acc = time.time(), 0, 0.0
        for step, (atoms, edges, owner, y) in enumerate(train):
            pred = model(atoms, edges, owner, len(y))
            loss = torch.nn.functional.smooth_l1_loss(pred, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            acc += loss.item() * len(y)
            seen += len(y)
            if step % 25 == 0:
                print(f"  epoch {epoch} step {step:3d} loss {acc / seen:.4f}", flush=True)
        model.eval()
        with torch.no_grad():
            err = n = 0
            for atoms, edges, owner, y in test:
                err += (model(atoms, edges, owner, len(y)) - y).abs().sum().item()
                n += len(y)
        print(f"epoch {epoch}: train {acc / seen:.4f}  test MAE {err / n:.4f}  {time.time() - start:.1f}s", flush=True)


if __name__ == "__main__":
    main()
