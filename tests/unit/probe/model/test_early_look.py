"""When outermost modules are looked for before an optimizer has stepped.

Modules: flatout.probe.model.training_loop.
"""

import pytest
import torch
from tests.unit.probe.watched import Watch
from torch import nn


@pytest.mark.parametrize(
    ("early", "made", "num_passes", "found"),
    [
        (True, True, 2, True),
        (True, True, 1, False),
        (False, True, 2, False),
        (False, True, 9, False),
        (False, False, 2, True),
    ],
)
def test_modules_are_looked_for_after_two_passes_unless_an_optimizer_will_step(early, made, num_passes, found):
    model = nn.Linear(2, 1)
    with Watch() as watch:
        watch.training.looks_early = early
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if made else None
        for _ in range(num_passes):
            model(torch.ones(4, 2)).mean().backward()
        assert bool(watch.modules.roots()) is found
        if optimizer is not None and not found:
            optimizer.step()
            assert watch.modules.roots()
