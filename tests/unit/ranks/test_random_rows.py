"""Random numbers of a rank's rows against those that one process draws, bit for bit."""

import pytest
import torch
from torch.nn import functional

from flatout.probe.core.seams import Seams
from flatout.ranks.local_rows import HERE, OwnRows
from flatout.ranks.random_rows import LeftWhole, draw_whole_batches
from flatout.ranks.rows import shares

DRAWS = {
    "dropout": lambda x: functional.dropout(x, 0.3, True),
    "dropout in place": lambda x: functional.dropout(x.clone(), 0.3, True, True),
    "dropout1d": lambda x: functional.dropout1d(x, 0.4, True),
    "normal noise": lambda x: x + torch.randn_like(x),
    "uniform noise": lambda x: x + torch.rand_like(x),
    "numbers": lambda x: torch.randint_like(x, 9),
    "by size": lambda x: torch.randn(x.size(0), 3),
    "by a tuple": lambda x: torch.rand((x.size(0), 1), dtype=torch.float64),
    "gumbel": lambda x: functional.gumbel_softmax(x, dim=-1),
    "stochastic depth": lambda x: x * torch.empty(x.size(0), 1, 1).bernoulli_(0.5),
    "normal_": lambda x: torch.empty_like(x).normal_(1, 2),
    "uniform_": lambda x: torch.empty_like(x).uniform_(-1, 1),
    "heads": lambda x: functional.dropout(x.repeat_interleave(4, 0), 0.5),
}


@pytest.fixture
def seams():
    found = Seams()
    draw_whole_batches(found)
    yield found
    found.undo()
    HERE.rows = None


def by_rows(act, x, ranks):
    sizes = shares(len(x), ranks)
    parts, states = [], []
    for rank, part in enumerate(x.split(sizes)):
        torch.manual_seed(5)
        HERE.rows = OwnRows(len(x), sum(sizes[:rank]), sizes[rank], 0, sizes)
        try:
            parts.append(act(part))
        finally:
            HERE.rows = None
        states.append(torch.get_rng_state())
    return torch.cat(parts), states


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("shape", [(10, 4, 6), (7, 4, 6)])
def test_ranks_draw_what_one_process_draws(seams, name, shape):
    x = torch.randn(shape)
    torch.manual_seed(5)
    whole, end = DRAWS[name](x), torch.get_rng_state()
    found, states = by_rows(DRAWS[name], x, 2)
    assert torch.equal(found, whole)
    assert all(torch.equal(state, end) for state in states)


@pytest.mark.parametrize("channels_last", [True, False])
def test_masks_of_images_lie_in_memory_as_the_images_do(seams, channels_last):
    x = torch.randn(6, 3, 5, 5)
    x = x.to(memory_format=torch.channels_last) if channels_last else x
    for act in (lambda x: functional.dropout(x, 0.5), lambda x: functional.dropout2d(x, 0.5)):
        torch.manual_seed(5)
        whole = act(x)
        assert torch.equal(by_rows(act, x, 3)[0], whole)


def test_outside_of_cut_calls_nothing_changes(seams):
    x = torch.randn(6, 4)
    torch.manual_seed(5)
    found = functional.dropout(x), torch.randn(3), torch.rand_like(x)
    seams.undo()
    torch.manual_seed(5)
    assert all(map(torch.equal, found, (functional.dropout(x), torch.randn(3), torch.rand_like(x))))


@pytest.mark.parametrize(
    "act",
    [
        lambda x: functional.alpha_dropout(x, 0.5, True),
        lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1),
    ],
)
def test_what_cannot_be_drawn_by_rows_is_refused(seams, act):
    with pytest.raises(LeftWhole):
        by_rows(act, torch.randn(6, 4, 4), 2)


def test_a_shape_that_was_drawn_alike_by_all_ranks_is_so_for_every_number_of_rows(seams):
    draws = {}
    HERE.rows = OwnRows(10, 0, 5, 0, (5, 5), draws)
    torch.randn(8)
    torch.randn(5, 2)
    HERE.rows = OwnRows(8, 4, 4, 0, (4, 4), draws)
    torch.manual_seed(3)
    ours = torch.randn(8), torch.randn(4, 2)
    HERE.rows = None
    torch.manual_seed(3)
    assert torch.equal(ours[0], torch.randn(8))
    assert torch.equal(ours[1], torch.randn(8, 2)[4:])


def test_a_shape_that_went_with_the_rows_and_does_not_any_more_is_refused(seams):
    draws = {}
    HERE.rows = OwnRows(10, 0, 5, 0, (5, 5), draws)
    torch.randn(5, 2)
    HERE.rows = OwnRows(8, 4, 4, 0, (4, 4), draws)
    with pytest.raises(LeftWhole, match="4 of 8 rows"):
        torch.randn(5, 2)
