"""One forward pass under a dispatch mode, and whose operations can be told so."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from flatout.probe.core.event_log import EventLog
from flatout.probe.model.forward_pass import plain_on_cpu, within


class Names(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.__name__)
        return function(*args, **(kwargs or {}))


def test_operations_of_the_call_pass_the_mode_and_no_others():
    mode = Names()
    call = within(mode, lambda x, *, factor: x * factor)
    torch.ones(2) + 1
    assert call(torch.ones(2), factor=3.0).tolist() == [3.0, 3.0]
    assert mode.names == ["mul.Tensor"]


def test_the_mode_is_left_when_the_call_fails():
    mode = Names()
    with pytest.raises(ZeroDivisionError):
        within(mode, lambda: 1 // 0)()
    torch.ones(2) + 1
    assert mode.names == []


@pytest.mark.parametrize(
    ("device", "possible", "plain"), [("cpu", False, True), ("meta", False, False), ("cpu", True, False)]
)
def test_only_on_the_cpu_and_untraced_operations_run_one_by_one(device, possible, plain):
    log = EventLog(lambda step: None, lambda stretch: None)
    log.tracing.possible = possible
    assert plain_on_cpu(torch.nn.Linear(2, 2, device=device), log) is plain
