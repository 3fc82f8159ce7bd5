"""A synthetic stand-in for a frame-labelled speech corpus."""
import numpy as np
import torch
from torch.utils.data import Dataset

N_PHONES = 39


def _phone_prototypes(rng, n_feat):
    return rng.normal(0, 1, (N_PHONES, n_feat)).astype(np.float32)


class FrameCorpus(Dataset):
    """Chunks of `frames` consecutive feature frames, each frame with a phone id."""

    def __init__(self, n_chunks, frames, n_feat, seed, proto_seed=0):
        rng = np.random.default_rng(seed)
        proto = _phone_prototypes(np.random.default_rng(proto_seed), n_feat)
        follow = np.random.default_rng(proto_seed + 1).integers(0, N_PHONES, (N_PHONES, 4))
        labels = np.empty((n_chunks, frames), np.int64)
        for c in range(n_chunks):
            t, phone = 0, int(rng.integers(N_PHONES))
            while t < frames:
                d = int(rng.integers(3, 12))
                labels[c, t:t + d] = phone
                t += d
                phone = int(follow[phone, rng.integers(4)])
        feats = proto[labels]
        feats[:, 1:] = 0.6 * feats[:, 1:] + 0.4 * feats[:, :-1]
        feats += rng.standard_normal(feats.shape, dtype=np.float32) * 1.6
        self.feats, self.labels = torch.from_numpy(feats), torch.from_numpy(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.feats[i], self.labels[i]
