import torch
from torch.utils.data import Dataset

from .audio import LogMel


class PondClips(Dataset):
    def __init__(self, clips, labels, train):
        self.clips, self.labels, self.train = clips, labels, train
        self.features = LogMel()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        wave = self.clips[i]
        if self.train:
            gain = 10 ** torch.empty(1).uniform_(-0.3, 0.3)
            wave = torch.roll(wave * gain, int(torch.randint(0, len(wave), (1,))))
            wave = wave + 0.02 * torch.randn_like(wave)
        x = self.features(wave)  # <<
        if self.train:
            x = mask_band(x, axis=0, widest=6)
            x = mask_band(x, axis=1, widest=10)
        return x[None], self.labels[i]


def mask_band(x, axis, widest):
    width = int(torch.randint(0, widest + 1, (1,)))
    start = int(torch.randint(0, x.shape[axis] - width, (1,)))
    x = x.clone()
    x.narrow(axis, start, width).fill_(x.mean())
    return x
