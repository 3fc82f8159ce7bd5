"""Two-tower image and caption model with weight averaging and accumulated gradients."""
import argparse
import gc

import torch
import torch.nn as nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


class Towers(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 64, 3, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(width)
        )
        self.words = nn.EmbeddingBag(4000, width)
        self.mix = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, image, words):
        a = nn.functional.normalize(self.mix(self.image(image)), dim=1)
        b = nn.functional.normalize(self.mix(self.words(words)), dim=1)
        return self.scale.exp() * a @ b.T


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--accumulate", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    words = torch.randint(0, 4000, (1920, 12))
    images = torch.randn(1920, 3, 28, 28) + words[:, :1, None, None] / 2000
    data = TensorDataset(images, words)
    loader = DataLoader(data, sampler=BatchSampler(RandomSampler(data), 48, True), batch_size=None)
    model = Towers()
    model(images[:2], words[:2])
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(args.epochs):
        for step, (image, caption) in enumerate(loader):
            scores = model(image, caption)
            pairs = torch.arange(len(scores))
            loss = (nn.functional.cross_entropy(scores, pairs) + nn.functional.cross_entropy(scores.T, pairs)) / 2
            (loss / args.accumulate).backward()
            if step % args.accumulate == args.accumulate - 1:
                optimizer.step()
                optimizer.zero_grad()
                averaged.update_parameters(model)
        if epoch % 25 == 24:
            gc.collect()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
