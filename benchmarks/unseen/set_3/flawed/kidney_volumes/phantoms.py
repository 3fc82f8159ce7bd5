import torch
from torch.utils.data import Dataset


class KidneyPhantoms(Dataset):
    """CT-like cubes with one or two ellipsoids (kidney = 1) and a lesion inside (= 2)."""

    def __init__(self, n, side=24, seed=0):
        self.side = side
        g = torch.Generator().manual_seed(seed)
        ax = torch.linspace(-1, 1, side)
        zz, yy, xx = torch.meshgrid(ax, ax, ax, indexing="ij")
        self.volumes, self.labels = [], []
        for _ in range(n):
            c = torch.rand(3, generator=g) * 0.8 - 0.4
            r = torch.rand(3, generator=g) * 0.25 + 0.3
            kidney = ((zz - c[0]) / r[0]) ** 2 + ((yy - c[1]) / r[1]) ** 2 + ((xx - c[2]) / r[2]) ** 2 < 1
            lc = c + (torch.rand(3, generator=g) - 0.5) * r
            lesion = (zz - lc[0]) ** 2 + (yy - lc[1]) ** 2 + (xx - lc[2]) ** 2 < 0.03
            lab = kidney.long()
            lab[lesion & kidney] = 2
            vol = 0.5 * kidney + 0.4 * (lab == 2) + 0.3 * torch.randn(side, side, side, generator=g)
            self.volumes.append(vol.unsqueeze(0))
            self.labels.append(lab)

    def __len__(self):
        return len(self.volumes)

    def __getitem__(self, i):
        return self.volumes[i], self.labels[i]
