"""Which word was said, from its sound; what the model thought of every sound is drawn after the last epoch."""
import argparse

import torch
from torch import nn

SOUNDS, WORDS = 16000, 1500


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=128)
    args = parser.parse_args()
    torch.manual_seed(4)
    words = torch.randint(0, WORDS, (SOUNDS,))
    sounds = torch.randn(WORDS, 400)[words] + 2.0 * torch.randn(SOUNDS, 400)
    model = nn.Sequential(nn.Linear(400, 256), nn.ReLU(), nn.Linear(256, WORDS))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    thoughts = []
    for epoch in range(args.epochs):
        for rows in torch.randperm(SOUNDS).split(args.batch_size):
            scores = model(sounds[rows])
            loss = nn.functional.cross_entropy(scores, words[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            thoughts.append(scores.detach().softmax(1).max(1).values.mean())
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    sure = torch.stack(thoughts)
    print("sure of a word:", " ".join(f"{part.mean():.2f}" for part in sure.chunk(8)))


if __name__ == "__main__":
    main()
