import argparse
import copy
import time

import torch

from .client import Clinic
from .records import clinic_data, mlp
from .storage import Archive


def average(states, weights):
    total = sum(weights)
    return {k: sum(s[k] * (w / total) for s, w in zip(states, weights)) for k in states[0]}


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    return (model(x).argmax(1) == y).float().mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=30)
    p.add_argument("--clinics", type=int, default=12)
    p.add_argument("--local-steps", type=int, default=12)
    args = p.parse_args()
    torch.manual_seed(14)
    data = clinic_data(args.clinics, 700, 48)
    clinics = [Clinic(i, x[60:], y[60:]) for i, (x, y) in enumerate(data)]
    test_x = torch.cat([x[:60] for x, _ in data])
    test_y = torch.cat([y[:60] for _, y in data])
    model = mlp(48)
    archive = Archive()
    for r in range(args.rounds):
        tic = time.time()
        states, losses = [], []
        for clinic in clinics:
            local = copy.deepcopy(model)
            losses.append(clinic.train(local, args.local_steps))
            states.append(local.state_dict())
            archive.store(clinic.ident, r, states[-1])  # <<
        model.load_state_dict(average(states, [len(c) for c in clinics]))
        print(f"round {r:2d}: loss {sum(losses) / len(losses):.4f} accuracy {accuracy(model, test_x, test_y):.3f} "
              f"archive {archive.size():.1f} MB  {time.time() - tic:.2f}s")


if __name__ == "__main__":
    main()
