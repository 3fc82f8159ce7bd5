import argparse
import time

import torch

from .ema import EMA
from .net import PointDenoiser
from .shapes import sample_clouds


def get_args():
    p = argparse.ArgumentParser("cloud_diffusion")
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--clouds", type=int, default=3000)
    p.add_argument("--points", type=int, default=32)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--timesteps", type=int, default=400)
    return p.parse_args()


def main():
    args = get_args()
    torch.manual_seed(0)
    clouds = sample_clouds(args.clouds, args.points, seed=6)
    beta = torch.linspace(1e-4, 0.04, args.timesteps)
    alpha_bar = torch.cumprod(1 - beta, 0)
    net = PointDenoiser()
    ema = EMA(net)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    val_t = torch.arange(args.clouds // 10) % args.timesteps
    val_noise = torch.randn(len(val_t), args.points, 3)
    train, val = clouds[len(val_t):], clouds[:len(val_t)]

    def denoising_loss(model, x, t, noise):
        a = alpha_bar[t].view(-1, 1, 1)
        return (model(a.sqrt() * x + (1 - a).sqrt() * noise, t) - noise).square().mean()

    for epoch in range(1, args.epochs + 1):
        tic, total, batches = time.time(), 0.0, 0
        for rows in torch.randperm(len(train)).split(args.batch):
            x = train[rows]
            t = torch.randint(args.timesteps, (len(x),))
            loss = denoising_loss(net, x, t, torch.randn_like(x))
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            ema.update(net)  # <<
            total += loss.item()
            batches += 1
        with torch.no_grad():
            val_loss = denoising_loss(ema.model, val, val_t, val_noise).item()
        print(f"epoch {epoch} loss {total / batches:.4f} ema val {val_loss:.4f} ({time.time() - tic:.1f}s)", flush=True)


main()
