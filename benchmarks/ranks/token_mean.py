"""A language model: the loss is the mean over tokens that count, and a causal mask is kept."""

import torch
from torch import nn

torch.manual_seed(4)


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(40, 16, padding_idx=0), nn.Parameter(torch.randn(12, 16) * 0.02)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 40, bias=False)
        self.head.weight = self.embed.weight
        self.mask = None

    def forward(self, tokens):
        length = tokens.shape[1]
        if self.mask is None or self.mask.shape[0] != length:
            self.mask = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.embed(tokens) + self.place[:length]
        return self.head(self.layer(x, src_mask=self.mask, is_causal=True))


model = Tiny()
optimizer = torch.optim.Adam(model.parameters(), 1e-3, betas=(0.9, 0.95), eps=1e-4)
for step in range(12):
    lengths = torch.randint(3, 11, (9,))
    tokens = torch.zeros(9, int(lengths.max()), dtype=torch.long)
    for row, length in zip(tokens, lengths, strict=True):
        row[:length] = torch.randint(1, 40, (int(length),))
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.6f}")
