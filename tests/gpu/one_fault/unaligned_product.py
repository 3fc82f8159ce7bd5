"""A language model whose vocabulary has 50,257 entries, in bfloat16; repaired: 50,304, a multiple of 64."""

import torch
from torch import nn


def main(repaired=False, steps=100_000):
    torch.manual_seed(0)
    vocabulary, width = 50_304 if repaired else 50_257, 768
    layer = nn.TransformerEncoderLayer(width, 12, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
    body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(vocabulary, width), body, nn.Linear(width, vocabulary, bias=False)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.randint(0, 50_257, (8, 1025), device="cuda")
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
