"""Types of one's own in torch's table of collate functions."""

import torch
from torch.utils.data import default_collate

from flatout.torch_loader.collated_types import collate_by, collated


class Pair(dict):
    pass


def test_default_collate_asks_the_function_of_this_very_type():
    def collate_pairs(batch, *, collate_fn_map=None):
        return {"made": collated([pair["a"] for pair in batch], collate_fn_map)}

    collate_by(Pair, collate_pairs)
    assert default_collate([Pair(a=1), Pair(a=2)])["made"].tolist() == [1, 2]
    assert default_collate([{"a": 1}, {"a": 2}])["a"].tolist() == [1, 2]
    assert torch.equal(default_collate([[Pair(a=1)], [Pair(a=2)]])[0]["made"], torch.tensor([1, 2]))
