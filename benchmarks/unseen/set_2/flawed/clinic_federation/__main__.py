import argparse
import time

import torch

from .clinics import federation
from .client import Client
from .server import CoughNet, average, evaluate

parser = argparse.ArgumentParser(prog="clinic_federation")
parser.add_argument("--rounds", type=int, default=12)
parser.add_argument("--clinics", type=int, default=12)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--workers", type=int, default=2)  # <<


def main():
    args = parser.parse_args()
    torch.manual_seed(0)
    shards, test = federation(args.clinics)
    clients = [Client(f"clinic-{i}", s, lr=args.lr, num_workers=args.workers) for i, s in enumerate(shards)]
    model = CoughNet()
    for r in range(args.rounds):
        start = time.time()
        updates = [c.fit(model) for c in clients]
        model.load_state_dict(average(updates))
        loss = sum(n * l for _, n, l in updates) / sum(n for _, n, _ in updates)
        print(f"round {r + 1}/{args.rounds}  local loss {loss:.3f}  test acc {evaluate(model, test):.3f}"
              f"  {time.time() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
