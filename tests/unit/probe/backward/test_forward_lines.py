"""A node's forward line is noted in anomaly mode, which is left as the script has it."""

from pathlib import Path

import pytest
import torch

from flatout.probe.backward.forward_lines import ForwardLines, forward_line, is_of_recurrent_layer
from flatout.probe.core.seams import Seams


@pytest.fixture
def lines():
    made, seams = ForwardLines(), Seams()
    made.install(seams)
    yield made
    made.end()
    seams.undo()
    torch.set_anomaly_enabled(False)


def test_the_innermost_line_is_noted_while_it_is_on(lines):
    x = torch.ones(3, requires_grad=True)
    assert forward_line((x * 2).grad_fn) is None
    assert lines.begin()
    node = (x * 2).grad_fn
    lines.end()
    place = forward_line(node)
    assert (place.file, place.function) == (__file__, "test_the_innermost_line_is_noted_while_it_is_on")
    assert "(x * 2)" in Path(__file__).read_text(encoding="utf-8").splitlines()[place.line - 1]
    assert not torch.is_anomaly_enabled()
    assert torch.is_anomaly_check_nan_enabled()


def test_what_a_recurrent_layer_computes_is_told_from_what_the_script_cuts_out(lines):
    layer, cell = torch.nn.LSTM(2, 3, batch_first=True), torch.nn.LSTMCell(2, 3)
    x = torch.ones(4, 5, 2, requires_grad=True)
    assert lines.begin()
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, [5, 4, 2, 1], batch_first=True)
    inside, outside = layer(packed)[0].data.grad_fn, cell(x[:, 0])[0].grad_fn
    cut = x[:, 1].grad_fn
    lines.end()
    assert is_of_recurrent_layer(inside)
    assert not is_of_recurrent_layer(cut)
    assert forward_line(inside).file == forward_line(outside).file == __file__


def test_a_script_that_detects_anomalies_is_left_alone(lines):
    with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly():
        assert not lines.begin()
        assert torch.is_anomaly_enabled()
    assert not lines.begin()  # it may again


def test_what_the_script_sets_meanwhile_stays(lines):
    assert lines.begin()
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    lines.end()
    assert torch.is_anomaly_enabled()
    assert not torch.is_anomaly_check_nan_enabled()


def test_a_block_of_the_script_puts_back_what_was_there_before_us(lines):
    assert lines.begin()
    with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly(check_nan=False):
        assert torch.is_anomaly_enabled()
    assert not torch.is_anomaly_enabled()


def test_a_failure_in_backward_says_the_line(lines):
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            raise ValueError("wrong")

    assert lines.begin()
    loss = Fails.apply(torch.ones(3, requires_grad=True)).sum()
    with pytest.warns(UserWarning, match="test_forward_lines"), pytest.raises(ValueError, match="wrong"):
        loss.backward()
