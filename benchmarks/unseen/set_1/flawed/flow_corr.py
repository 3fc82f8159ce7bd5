"""Learns the motion between successive frames from a local correlation volume."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class FrameEncoder(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 24, 5, 2, 2)
        self.conv2 = nn.Conv2d(24, ch, 3, 1, 1)

    def forward(self, x):
        return self.conv2(F.relu(self.conv1(x)))


class LocalCorrelation(nn.Module):
    """Correlates every position of `a` with a (2r+1)^2 neighbourhood in `b`."""

    def __init__(self, radius):
        super().__init__()
        self.radius = radius

    def forward(self, a, b):
        n, c, h, w = a.shape
        r = self.radius
        around = F.unfold(F.pad(b, (r, r, r, r), mode="replicate"), 2 * r + 1).view(n, c, -1, h * w)
        volume = (a.flatten(2).unsqueeze(2) * around).sum(1) / c ** 0.5
        return volume.view(n, -1, h, w)


class FlowNet(nn.Module):
    def __init__(self, ch=32, radius=2):
        super().__init__()
        self.encoder = FrameEncoder(ch)
        self.correlation = LocalCorrelation(radius)
        self.decoder = nn.Sequential(
            nn.Conv2d((2 * radius + 1) ** 2, 32, 3, padding=1), nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
            nn.Conv2d(32, 2, 3, padding=1),
        )

    def forward(self, first, second):
        both = self.encoder(torch.cat([first, second]))
        a, b = both.chunk(2)
        return self.decoder(self.correlation(a, b))


class GradientMonitor:
    """Watches the size of the gradients that reach the convolutions."""

    def __init__(self, net):
        self.sizes = {}
        for name, module in net.named_modules():
            if isinstance(module, nn.Conv2d) and module.in_channels > 1:
                module.register_full_backward_hook(self.watch(name))  # <<

    def watch(self, name):
        def hook(module, grad_input, grad_output):
            size = grad_output[0].abs().flatten()
            self.sizes.setdefault(name, []).append(torch.quantile(size, 0.99))  # <<

        return hook

    def summary(self):
        means = {name: torch.stack(v).mean().item() for name, v in self.sizes.items()}
        self.sizes.clear()
        top = max(means, key=means.get)
        return f"largest gradients at {top} ({means[top]:.2e})"


def moving_pairs(n, size=48, most=4):
    """Textured frames and the same frames, moved by a whole number of pixels."""
    g = torch.Generator().manual_seed(9)
    base = F.interpolate(torch.randn(n, 1, 20, 20, generator=g), size=size + 2 * most, mode="bilinear", align_corners=False)
    motion = torch.randint(-most, most + 1, (n, 2), generator=g)
    first = base[:, :, most:most + size, most:most + size].contiguous()
    second = torch.empty_like(first)
    for i, (dy, dx) in enumerate(motion.tolist()):
        second[i] = base[i, :, most + dy:most + dy + size, most + dx:most + dx + size]
    return first, second, -motion.float() / 2


def endpoint_error(pred, motion):
    diff = pred - motion[:, :, None, None]
    return (diff.pow(2).sum(1) + 1e-6).sqrt().mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=16)
    ap.add_argument("--batch", type=int, default=4)
    args = ap.parse_args()
    torch.manual_seed(0)
    first, second, motion = moving_pairs(240)
    net = FlowNet()
    monitor = GradientMonitor(net)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 2e-3, total_steps=args.epochs * 60)
    for epoch in range(args.epochs):
        t = time.time()
        total = torch.zeros(())
        for idx in torch.randperm(240).split(args.batch):
            loss = endpoint_error(net(first[idx], second[idx]), motion[idx])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            total += loss.detach()
        print(f"epoch {epoch} epe {total.item() / 60:.3f} {time.time() - t:.2f} s  {monitor.summary()}", flush=True)


if __name__ == "__main__":
    main()
