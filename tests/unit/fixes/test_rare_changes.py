"""Data sets that change at a few samples alone, or by what the first sample was: workers are as the script's own."""

import pytest
import torch
from tests.unit.fixes.training import under
from torch.utils.data import DataLoader, Dataset

from flatout import compile_loader

pytestmark = pytest.mark.slow


class Counting(Dataset):
    """Counts how often one sample was made; all hold the count."""

    count = 0

    def __init__(self, rare):
        self.rare = rare

    def __len__(self):
        return 24

    def __getitem__(self, index):
        sum(range(3000))
        self.count += index == self.rare
        return torch.tensor([float(index), float(self.count)])


class Relative(Dataset):
    """Samples less the first that was made."""

    first = None

    def __init__(self, _):
        self.rows = torch.arange(24.0) ** 2

    def __len__(self):
        return 24

    def __getitem__(self, index):
        sum(range(3000))
        if self.first is None:
            self.first = self.rows[index].clone()
        return self.rows[index] - self.first


class Opening(Relative):
    """Opens a table at the first sample, which is the same whichever that is."""

    def __getitem__(self, index):
        if self.first is None:
            self.first = torch.zeros(1)
        return super().__getitem__(index)


def passes(data, rare, size, workers, wrap=lambda loader: loader):
    torch.manual_seed(0)
    loader = wrap(DataLoader(data(rare), batch_size=size, shuffle=True, num_workers=workers))
    return [batch.tolist() for _ in range(6) for batch in loader]


@pytest.mark.parametrize("size", [3, 4])
@pytest.mark.parametrize(
    ("data", "rare"), [(Counting, 0), (Counting, 5), (Counting, 13), (Counting, 23), (Relative, 0), (Opening, 0)]
)
@pytest.mark.few(1)
def test_batches_are_those_of_the_script_s_own_workers(data, rare, size):
    plain, alone = passes(data, rare, size, 2), passes(data, rare, size, 0)
    assert passes(data, rare, size, 2, compile_loader) == plain
    assert passes(data, rare, size, 0, compile_loader) == alone
    with under("persistent-workers") as process:
        assert passes(data, rare, size, 2) == plain
        stayed = process.site.hits.get("DataLoader", 0)
    assert stayed == 5 or data is not Opening
    with under("loader-workers", workers=2):
        assert passes(data, rare, size, 0) == alone
