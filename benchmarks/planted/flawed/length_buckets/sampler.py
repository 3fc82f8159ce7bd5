import random

from torch.utils.data import Sampler


class SimilarLength(Sampler):
    """Yields batches of sentences whose lengths are close, starting at a random length each time."""

    def __init__(self, lengths, batch_size, num_batches, seed=0):
        self.lengths = lengths
        self.batch_size = batch_size
        self.num_batches = num_batches
        self.rnd = random.Random(seed)

    def __len__(self):
        return self.num_batches

    def __iter__(self):
        remaining = list(range(len(self.lengths)))
        for _ in range(len(self)):
            self.rnd.random()
            remaining = sorted(remaining, key=lambda i: (self.lengths[i], i))  # <<
            start = self.rnd.randrange(len(remaining) - self.batch_size + 1)
            batch = remaining[start : start + self.batch_size]
            chosen = set(batch)
            remaining = [i for i in remaining if i not in chosen]  # <<
            yield batch
