"""The state at a forward pass, taken down and given again."""

import torch

from flatout.fixes.model.forward_state import ForwardState


def test_inputs_that_are_written_to_are_told_and_given_again_as_they_were():
    x, running = torch.ones(2), torch.zeros(2)
    state = ForwardState((x, running, 3), [1], draws=False)
    state.watch()
    assert state.written() == ()
    running += 5
    assert state.written() == (1,)
    assert state.overwritten() == set()
    with state.again() as args:
        assert args[0] is x
        assert args[1].tolist() == [0.0, 0.0]
        args[1] += 1  # another pass writes to it, too
        assert args[2] == 3
    with state.again() as args:
        assert args[1].tolist() == [0.0, 0.0]
    assert running.tolist() == [5.0, 5.0]


def test_an_input_whose_values_are_gone_is_told():
    x = torch.ones(2)
    state = ForwardState((x,), [], draws=False)
    state.watch()
    x += 1
    assert state.overwritten() == {0}


def test_random_numbers_come_again_and_the_present_goes_on():
    torch.manual_seed(3)
    state = ForwardState((), [], draws=True)
    assert not state.drew()
    first = torch.rand(2)
    assert state.drew()
    now = torch.get_rng_state()
    with state.again():
        assert torch.equal(torch.rand(2), first)
    assert torch.equal(torch.get_rng_state(), now)


def test_a_graph_that_does_not_draw_leaves_the_stream_where_it_is():
    state = ForwardState((), [], draws=False)
    torch.rand(1)
    now = torch.get_rng_state()
    with state.again():
        assert torch.equal(torch.get_rng_state(), now)


def test_autocast_and_gradients_are_those_of_then():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        state = ForwardState((), [], draws=False)
    assert not torch.is_autocast_enabled("cpu")
    with torch.no_grad(), state.again():
        assert torch.is_grad_enabled()
        assert torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") is torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")


def test_what_was_made_in_inference_mode_counts_no_writes():
    with torch.inference_mode():
        x = torch.ones(2)
        state = ForwardState((x,), [0], draws=False)
        state.watch()
        x += 1
        assert state.written() == ()
