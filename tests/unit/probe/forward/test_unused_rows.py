"""Rows of a linear layer's output that the loss does not read."""

from threading import get_ident
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

from flatout.probe.core.seams import Seams
from flatout.probe.forward.unused_rows import RowWatch

TARGETS = torch.arange(64) % 50
MASKED = TARGETS.masked_fill(torch.arange(64) % 4 > 0, -100)


def trained(loss, rows=(8, 8), possible=False):
    """Return what is found in a training with that loss of the logits of 8 sequences of 8."""
    torch.manual_seed(0)
    body, layer = nn.Linear(16, 256), nn.Linear(256, 64)
    log = SimpleNamespace(fetching=False, thread=get_ident(), tracing=SimpleNamespace(possible=possible))
    watch, seams = RowWatch(SimpleNamespace(event_log=log)), Seams()
    watch.install(seams)
    try:
        for number in range(2, 16):
            result = loss(layer(torch.relu(body(torch.randn(*rows, 16)))))
            watch.backward(result)
            result.backward()
            watch.step(None, number)
    finally:
        seams.undo()
    watch.measure()
    return watch.facts()


@pytest.mark.parametrize(
    ("loss", "unused"),
    [
        (lambda logits: functional.cross_entropy(logits.view(-1, 64), MASKED), 48),
        (lambda logits: nn.CrossEntropyLoss(ignore_index=-100)(logits.transpose(1, 2), MASKED.view(8, 8)), 48),
        (lambda logits: functional.cross_entropy(logits[:, -1], TARGETS[:8]), 56),
        (lambda logits: functional.cross_entropy(logits.view(-1, 64)[MASKED >= 0], TARGETS[MASKED >= 0]), 48),
        (
            lambda logits: (
                functional.cross_entropy(logits.view(-1, 64), TARGETS, reduction="none") * (MASKED >= 0)
            ).sum(),
            48,
        ),
        (lambda logits: functional.mse_loss(logits[:, 0], torch.zeros(8, 64)), 56),
    ],
)
def test_rows_that_the_loss_leaves_out_are_counted_and_timed(loss, unused):
    found = trained(loss)
    assert (found.rows, found.unused, found.width) == (64, unused, 64)
    assert found.place.file == __file__
    assert found.n >= 2
    assert found.all_s > 0 < found.used_s


def test_where_every_row_is_read_nothing_is_timed():
    found = trained(lambda logits: functional.cross_entropy(logits.view(-1, 64), TARGETS))
    assert (found.unused, found.n) == (0, 0)


@pytest.mark.parametrize(
    "loss",
    [
        lambda logits: torch.relu(logits.mean(2) - 100).sum() + 0 * logits[0, 0, 0],
        lambda logits: functional.cross_entropy(logits.view(-1, 64), TARGETS, reduction="none").topk(8)[0].mean(),
        lambda logits: (lambda each: each[each > each.median()].mean())(
            functional.cross_entropy(logits.view(-1, 64), TARGETS, reduction="none")
        ),
    ],
)
def test_rows_that_are_left_out_by_their_values_are_not(loss):
    found = trained(loss)
    assert found is None or found.unused == 0


def test_small_layers_are_not_looked_at():
    assert trained(lambda logits: functional.cross_entropy(logits[:, -1], TARGETS[:1]), rows=(1, 2)) is None
