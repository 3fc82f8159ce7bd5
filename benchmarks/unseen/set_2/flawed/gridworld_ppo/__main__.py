import argparse
import time

import numpy as np
import torch

from .agent import ActorCritic, ppo_loss
from .rollout import Collector


def main():
    ap = argparse.ArgumentParser("gridworld_ppo")
    ap.add_argument("--iterations", type=int, default=40)
    ap.add_argument("--envs", type=int, default=16)
    ap.add_argument("--horizon", type=int, default=64)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--minibatch", type=int, default=256)
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()
    torch.manual_seed(3)
    net = ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=args.lr, eps=1e-5)
    collector = Collector(args.envs, args.horizon)
    t0 = time.time()
    for it in range(1, args.iterations + 1):
        obs, act, logp, adv, ret = collector.collect(net)  # <<
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        losses = []
        for _ in range(args.epochs):
            for idx in torch.randperm(len(obs)).split(args.minibatch):
                loss = ppo_loss(net, obs[idx], act[idx], logp[idx], adv[idx], ret[idx])
                opt.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                opt.step()
                losses.append(loss.item())
        if it % 5 == 0:
            print(f"iter {it:3d}  frames {it * len(obs):7d}  loss {np.mean(losses):+.4f}  "
                  f"return {np.mean(collector.finished[-100:]):.3f}  {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
