import torch
from torch import nn

from .corpus import N_PHONES


class Recurrence(nn.Module):
    """Bidirectional recurrent layer over (batch, time, features)."""

    def __init__(self, n_in, n_hidden):
        super().__init__()
        self.n_hidden = n_hidden
        self.fwd = nn.LSTMCell(n_in, n_hidden)
        self.bwd = nn.LSTMCell(n_in, n_hidden)

    def _scan(self, cell, x, order):
        h = x.new_zeros(x.size(0), self.n_hidden)
        c = torch.zeros_like(h)
        out = [None] * x.size(1)
        for t in order:  # <<
            h, c = cell(x[:, t], (h, c))  # <<
            out[t] = h
        return torch.stack(out, 1)

    def forward(self, x):
        steps = range(x.size(1))
        return torch.cat([self._scan(self.fwd, x, steps), self._scan(self.bwd, x, reversed(steps))], 2)  # <<


class Labeller(nn.Module):
    def __init__(self, n_feat=40, n_hidden=64, dropout=0.2):
        super().__init__()
        self.norm = nn.LayerNorm(n_feat)
        self.rnn = Recurrence(n_feat, n_hidden)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(2 * n_hidden, N_PHONES)

    def forward(self, x):
        return self.out(self.drop(self.rnn(self.norm(x))))
