import numpy as np
from torch.utils.data import Dataset


class LeafDataset(Dataset):
    """Small RGB crops of leaves with one of five conditions."""

    def __init__(self, n, transform=None):
        rng = np.random.default_rng(42)
        self.labels = rng.integers(0, 5, n)
        base = rng.integers(30, 90, (n, 48, 48, 3))
        base[..., 1] += 12 * self.labels[:, None, None]
        self.images = base.astype(np.uint8)
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        if self.transform is not None:
            image = self.transform(image)
        return image, int(self.labels[index])
