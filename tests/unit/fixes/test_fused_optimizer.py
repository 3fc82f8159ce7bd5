"""Another implementation of the same update, invisible from outside the step."""

import io
import pickle

import pytest
import torch
from tests.unit.fixes.training import same_bits, train, under

KINDS = {
    "fused": [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad],
    "foreach": [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adamax, torch.optim.Adadelta],
}
CASES = [(implementation, kind) for implementation, kinds in KINDS.items() for kind in kinds]


@pytest.mark.parametrize(("implementation", "kind"), CASES)
@pytest.mark.slow
def test_steps_are_as_close_as_rounding_and_the_state_has_the_same_form(implementation, kind):
    plain, plain_optimizer, _ = train(make=lambda ps: kind(ps, lr=0.01))
    with under("fused-optimizer", implementation=implementation) as process:
        model, optimizer, _ = train(make=lambda ps: kind(ps, lr=0.01))
        assert process.site.hits == {f"{kind.__name__}.step": 4}
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    ours, theirs = optimizer.state_dict(), plain_optimizer.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    for number, state in theirs["state"].items():
        assert list(ours["state"][number]) == list(state)
        for name, value in state.items():
            each = ours["state"][number][name]
            assert (each.dtype, each.shape, each.stride()) == (value.dtype, value.shape, value.stride())


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop])
def test_foreach_gives_the_same_bits_for_common_optimizers(kind):
    plain, _, losses = train(make=lambda ps: kind(ps, lr=0.01))
    with under("fused-optimizer", implementation="foreach"):
        model, _, under_it = train(make=lambda ps: kind(ps, lr=0.01))
    assert losses == under_it
    assert same_bits(model.state_dict(), plain.state_dict())


def test_the_flags_are_the_scripts_own_before_and_after_every_step_and_in_pickles():
    with under("fused-optimizer"):
        _, optimizer, _ = train(make=torch.optim.Adam)
        flags = [(group["fused"], group["foreach"]) for group in optimizer.param_groups]
        assert flags == [(None, None)]
        assert not optimizer.state_dict()["param_groups"][0]["fused"]
        assert not pickle.loads(pickle.dumps(optimizer)).param_groups[0]["fused"]
        assert not hasattr(optimizer, "_step_supports_amp_scaling")


def test_a_checkpoint_goes_on_in_a_plain_script_and_comes_back():
    with under("fused-optimizer") as process:
        model, optimizer, _ = train(make=torch.optim.Adam)
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file)
    plain = torch.optim.Adam(model.parameters())
    plain.load_state_dict(saved["optimizer"])
    train(model=model, optimizer=plain)
    with under("fused-optimizer") as process:
        again = torch.optim.Adam(model.parameters())
        again.load_state_dict(plain.state_dict())
        train(model=model, optimizer=again)
        assert process.site.hits == {"Adam.step": 4}
    assert [float(state["step"]) for state in again.state.values()] == [12.0] * len(again.state)


def test_it_is_switched_off_and_on_between_steps():
    def flip(step):
        (process.site.disable if step % 2 else process.site.enable)()

    with under("fused-optimizer") as process:
        model, _, _ = train(steps=6, make=torch.optim.Adam, before_step=flip)
        assert process.site.hits == {"Adam.step": 3}
    plain, _, _ = train(steps=6, make=torch.optim.Adam)
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


class Own(torch.optim.Adam):
    """A class of the script's."""


@pytest.mark.parametrize(
    "make",
    [
        lambda ps: Own(ps),
        lambda ps: torch.optim.Adam(ps, fused=True),
        lambda ps: torch.optim.Adam(ps, foreach=True),
        lambda ps: torch.optim.Adam(ps, lr=torch.tensor(0.001)),
        lambda ps: torch.optim.LBFGS(ps),
    ],
)
@pytest.mark.slow
def test_what_it_does_not_know_or_what_has_it_already_is_left_alone(make):
    with under("fused-optimizer") as process:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        optimizer = make(list(model.parameters()))
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step(lambda: model(torch.ones(2, 3)).sum())
        assert process.site.hits == {}


def test_sparse_gradients_and_double_precision_by_default_are_left_alone():
    with under("fused-optimizer") as process:
        table = torch.nn.Embedding(5, 2, sparse=True)
        optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
        table(torch.tensor([1, 2])).sum().backward()
        optimizer.step()
        torch.set_default_dtype(torch.float64)
        try:
            layer = torch.nn.Linear(2, 1)
            adam = torch.optim.Adam(layer.parameters())
            layer(torch.ones(1, 2)).sum().backward()
            adam.step()
            assert adam.state[layer.weight]["step"].dtype is torch.float64
        finally:
            torch.set_default_dtype(torch.float32)
        assert process.site.hits == {}


def test_a_scheduler_a_scaler_and_hooks_see_the_same_steps():
    with under("fused-optimizer") as process:
        seen = []
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        optimizer.register_step_post_hook(lambda *_: seen.append(len(seen)))
        for factor in (1.0, float("inf"), 1.0):
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(2, 3)).sum() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
        assert seen == [0, 1]
        assert process.site.hits == {"SGD.step": 2}
        assert optimizer.param_groups[0]["lr"] == 0.0125


@pytest.mark.parametrize("kind", KINDS["fused"])
@pytest.mark.slow
def test_weights_gradients_and_moments_in_different_memory_orders_are_updated_right(kind):
    def run():
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(4, 3, 3, 3).contiguous(memory_format=torch.channels_last))
        sliced = torch.nn.Parameter(torch.randn(4, 8)[:, ::2])
        optimizer = kind([{"params": [weight]}, {"params": [sliced]}], lr=0.01)
        for step in range(6):
            weight.grad, sliced.grad = torch.randn(4, 3, 3, 3), torch.randn(4, 4)
            if step >= 2:
                weight.grad = weight.grad.contiguous(memory_format=torch.channels_last)
            if step >= 4:
                for value in optimizer.state[weight].values():
                    value.data = value.data.contiguous()
            optimizer.step()
        return weight, sliced

    plain = run()
    with under("fused-optimizer"):
        for one, other in zip(run(), plain, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
