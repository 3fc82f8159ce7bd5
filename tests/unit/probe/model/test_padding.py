"""How much of a batch is padding, as the masks say that reach the model."""

from threading import get_ident

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe_failure import raise_it
from flatout.probe.core.seams import Seams
from flatout.probe.model.padding import PaddingWatch, padded_ends

LENGTHS = [[8, 5, 2], [6, 6, 1], [3, 4, 4]]
WIDE = 8  # positions of a batch


@pytest.fixture
def watch():
    event_log = EventLog(lambda _: None, lambda _: None)
    event_log.thread = get_ident()
    watch, seams = PaddingWatch(event_log), Seams()
    watch.trouble = raise_it
    watch.install(seams)
    yield watch
    seams.undo()


def tokens(lengths):
    return torch.tensor([[7] * n + [0] * (WIDE - n) for n in lengths])


def trained(watch, module, *args, **kwargs):
    watch.called(module, (args, kwargs))
    return module(*args, **kwargs)


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 16, padding_idx=0)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)

    def forward(self, indices):
        return self.layers(self.embed(indices), src_key_padding_mask=indices == 0)


class Recurs(nn.Module):
    def __init__(self, packed=False):
        super().__init__()
        self.embed, self.packed = nn.Embedding(10, 4, padding_idx=0), packed
        self.lstm = nn.LSTM(4, 4, batch_first=True)

    def forward(self, indices):
        values = self.embed(indices)
        if self.packed:
            lengths = (indices != 0).sum(1)
            values = nn.utils.rnn.pack_padded_sequence(values, lengths, batch_first=True, enforce_sorted=False)
        return self.lstm(values)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 1)

    def forward(self, input_ids, attention_mask=None):
        return self.linear(input_ids.float().unsqueeze(-1))


def expected():
    padded = sum(WIDE - n for lengths in LENGTHS for n in lengths)
    cut_off = sum(len(lengths) * (WIDE - max(lengths)) for lengths in LENGTHS)
    return padded, cut_off


@pytest.mark.parametrize(("make", "source"), [(Attends, "key_padding_mask"), (Recurs, "padding_idx")])
def test_the_padding_of_each_batch_is_counted_once_by_the_strongest_source(watch, make, source):
    module = make()
    for lengths in LENGTHS:
        trained(watch, module, tokens(lengths))
    (found,) = watch.facts()
    padded, cut_off = expected()
    assert (found.source, found.batches, found.positions) == (source, 3, 3 * 3 * WIDE)
    assert (found.padded, found.cut_off) == (padded, cut_off)
    assert (found.place.file, found.place.function) == (__file__, "trained")


@pytest.mark.parametrize("how", ["by name", "in a mapping"])
def test_an_attention_mask_of_the_call_counts(watch, how):
    module = Masked()
    for lengths in LENGTHS:
        batch = {"input_ids": tokens(lengths), "attention_mask": (tokens(lengths) != 0).long()}
        if how == "by name":
            trained(watch, module, **batch)
        else:
            watch.called(module, ((batch,), {}))
    (found,) = watch.facts()
    assert (found.source, found.padded, found.cut_off) == ("attention_mask", *expected())


def test_packed_sequences_have_no_computed_padding(watch):
    module = Recurs(packed=True)
    for lengths in LENGTHS:
        trained(watch, module, tokens(lengths))
    assert watch.facts() == ()


def test_validation_is_not_looked_at(watch):
    module = Attends()
    with torch.no_grad():
        trained(watch, module, tokens(LENGTHS[0]))
    module.eval()
    trained(watch, module, tokens(LENGTHS[0]))
    module(tokens(LENGTHS[0]))  # a call that nobody was told of
    assert watch.facts() == ()


@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=5))
def test_padding_lies_at_the_ends_of_rows(rows):
    found = padded_ends(torch.tensor(rows)).tolist()
    for row, ends in zip(rows, found, strict=True):
        left = next((i for i, each in enumerate(row) if not each), len(row))
        right = next((i for i, each in enumerate(reversed(row)) if not each), len(row))
        assert ends == [i < left or i >= len(row) - right for i in range(len(row))]


def test_a_mask_over_pairs_of_positions_is_no_padding(watch):
    module = Masked()
    ids = tokens(LENGTHS[0])
    for _ in range(3):
        watch.called(module, ((), {"input_ids": ids, "attention_mask": torch.ones(WIDE, WIDE).tril().bool()}))
    assert watch.facts() == ()


def test_a_mask_in_which_zeros_count_is_not_taken_for_padding(watch):
    module = Masked()
    for lengths in [[WIDE, 5, 2], [6, WIDE, 1], [3, 4, WIDE]]:  # to the longest of each
        watch.called(module, ((), {"input_ids": tokens(lengths), "attention_mask": tokens(lengths) == 0}))
    assert watch.facts() == ()


def test_one_empty_text_does_not_turn_a_mask_around(watch):
    module = Masked()
    for lengths in [*LENGTHS, [0, 3, 2]]:
        watch.called(module, ((), {"input_ids": tokens(lengths), "attention_mask": (tokens(lengths) != 0).long()}))
    (found,) = watch.facts()
    assert (found.batches, found.padded) == (4, expected()[0] + 3 * WIDE - 5)


def test_a_mask_of_positions_that_no_input_has_in_that_order_counts(watch):
    module = Masked()
    for lengths in LENGTHS:
        mask = (tokens(lengths) != 0).long()
        watch.called(module, ((torch.zeros(3, 4, WIDE),), {"attention_mask": mask}))
    (found,) = watch.facts()
    assert (found.padded, found.cut_off) == expected()
