import argparse
import gc

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WORDS, WIDTH, KINDS = 80_000, 100, 12

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=60)
args = parser.parse_args()


class TitleNet(nn.Module):
    """The kind of a product from the words of its title; the vectors of words stay as they came."""

    def __init__(self, vectors):
        super().__init__()
        self.words = nn.Embedding.from_pretrained(vectors, freeze=True)
        self.head = nn.Sequential(
            nn.Conv1d(WIDTH, 192, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(192, 192, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveMaxPool1d(1),
            nn.Flatten(),
            nn.Linear(192, KINDS),
        )

    def forward(self, titles):
        return self.head(self.words(titles).transpose(1, 2))


def products(n, length=28):
    """Return titles as numbers of words, of which a third are words that the kind likes, and the kinds."""
    kinds = torch.randint(0, KINDS, (n,))
    common = (torch.rand(n, length) ** 3 * WORDS).long()
    liked = kinds[:, None] * 50 + torch.randint(0, 50, (n, length))
    return torch.where(torch.rand(n, length) < 0.33, liked, common), kinds


def main(rank):
    torch.manual_seed(4)
    data = TensorDataset(*products(2560))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler)
    net = TitleNet(torch.randn(WORDS, WIDTH) / 10)
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.head.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        right = 0
        for titles, kinds in loader:
            scores = model(titles)
            loss = F.cross_entropy(scores, kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == kinds).sum().item()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}, right {right / len(sampler):.1%}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    main(dist.get_rank())
    gc.collect()  # the model holds the group
    dist.destroy_process_group()
