"""The mask of the attention is copied to the device in each call; repaired: a buffer of the module."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, length, repaired):
        super().__init__()
        self.three, self.out, self.repaired = nn.Linear(width, 3 * width), nn.Linear(width, width), repaired
        mask = torch.zeros(length, length).masked_fill(torch.ones(length, length).triu(1).bool(), float("-inf"))
        if repaired:
            self.register_buffer("mask", mask)
        else:
            self.mask = mask

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.three(x).view(batch, length, 3, 8, width // 8).permute(2, 0, 3, 1, 4)
        mask = self.mask.to(x.device)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x + self.out(attended.transpose(1, 2).reshape(batch, length, width))


def main(repaired=False, steps=100_000):
    torch.manual_seed(0)
    model = nn.Sequential(*(Attention(512, 2048, repaired) for _ in range(4)), nn.Linear(512, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    inputs, labels = torch.randn(2, 2048, 512, device="cuda"), torch.randint(0, 10, (2 * 2048,), device="cuda")
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
