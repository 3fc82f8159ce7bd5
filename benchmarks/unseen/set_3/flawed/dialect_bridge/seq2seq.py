import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .corpus import BOS, EOS, PAD, VOCAB


class Seq2Seq(nn.Module):
    def __init__(self, dim=128):
        super().__init__()
        self.src_emb = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.tgt_emb = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.encoder = nn.GRU(dim, dim // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(dim, dim, batch_first=True)
        self.bridge = nn.Linear(dim, dim)
        self.mix = nn.Linear(2 * dim, dim)
        self.out = nn.Linear(dim, VOCAB)

    def encode(self, src, lens):
        packed = pack_padded_sequence(self.src_emb(src), lens, batch_first=True, enforce_sorted=False)
        mem, h = self.encoder(packed)
        mem, _ = pad_packed_sequence(mem, batch_first=True, total_length=src.size(1))
        h = torch.tanh(self.bridge(torch.cat([h[0], h[1]], -1))).unsqueeze(0)
        return mem, h, src == PAD

    def read(self, states, mem, pad):
        score = states @ mem.transpose(1, 2) / mem.size(-1) ** 0.5
        score = score.masked_fill(pad.unsqueeze(1), -1e9)
        context = score.softmax(-1) @ mem
        return self.out(torch.tanh(self.mix(torch.cat([states, context], -1))))

    def forward(self, src, lens, tgt_in):
        mem, h, pad = self.encode(src, lens)
        states, _ = self.decoder(self.tgt_emb(tgt_in), h)
        return self.read(states, mem, pad)

    @torch.no_grad()
    def greedy(self, src, lens, limit=20):
        mem, h, pad = self.encode(src, lens)
        token = torch.full((src.size(0), 1), BOS)
        done = torch.zeros(src.size(0), dtype=torch.bool)
        words = []
        for _ in range(limit):
            state, h = self.decoder(self.tgt_emb(token), h)
            token = self.read(state, mem, pad).argmax(-1)
            token = token.masked_fill(done.unsqueeze(1), PAD)
            words.append(token)
            done |= token.squeeze(1) == EOS
            if done.all():
                break
        return torch.cat(words, 1)
