"""The backward passes of a few steps are told by the lines that made their nodes, and training stays the same.

Modules: flatout.probe.backward.recorded_pass, flatout.probe.backward.leaf_use, flatout.probe.backward.node_sums,
flatout.probe.backward.embedding_tables.
"""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.checkpoint import checkpoint

from flatout.probe.backward.backward_passes import BackwardWatch
from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe import DeepContext
from flatout.probe.core.probe_failure import raise_it
from flatout.probe.core.seams import Seams
from flatout.schema.run import Step

STEPS = 14


class Training:
    """Steps of a made-up training under the watch."""

    def __init__(self, optimizers=(), *, watched=True):
        log = EventLog(lambda step: None, lambda stretch: None)
        log.tracing.possible = False
        self.offered = []
        self.context = DeepContext(
            event_log=log,
            fail=raise_it,
            in_step=lambda: True,
            between_epochs=lambda: False,
            optimizers=lambda: optimizers,
            modules=tuple,
            aside=lambda: False,
            offer=lambda name, switch: self.offered.append((name, switch)),
        )
        self.watch, self.seams = BackwardWatch(self.context), Seams()
        if watched:
            self.watch.install(self.seams)

    def run(self, step, steps=STEPS):
        try:
            for number in range(1, steps + 1):
                step()
                self.watch.step(Step(start_ns=0, wall_ns=10**7, phases_ns=(0,) * 8), number)
        finally:
            self.watch.stop()
            self.seams.undo()
        return self.watch.facts()


def line_of(text):
    """Return the number of the one line of this file that ends with a mark."""
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(source, 1) if line.endswith(f"# {text}"))


def trained(watched):
    """Train with hooks, a checkpoint, a penalty of second order and several passes; return weights and losses."""
    torch.manual_seed(0)
    first, second, head = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 4)
    weights = [*first.parameters(), *second.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(weights, lr=0.01)
    norms, losses = [], []
    first.weight.register_hook(lambda grad: norms.append(grad.norm().item()))
    head.weight.register_hook(lambda grad: grad * 0.5)
    training = Training([optimizer], watched=watched)

    def step():
        x = torch.randn(8, 16, requires_grad=True)
        hidden = checkpoint(second, torch.tanh(first(x)), use_reentrant=False)
        out = head(torch.relu(hidden))
        slope = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
        optimizer.zero_grad()
        out.square().mean().backward(retain_graph=True)
        (slope.square().sum() + out.mean()).backward()
        optimizer.step()
        losses.append(out.detach().clone())

    training.run(step)
    return [*weights, *losses, torch.tensor(norms)]


def test_training_is_the_same_to_the_last_bit():
    assert all(map(torch.equal, trained(True), trained(False)))


def test_nothing_of_it_is_left_afterwards():
    before = torch.Tensor.grad, torch.autograd.backward, sys.getprofile(), torch.is_anomaly_enabled()
    trained(True)
    assert before == (torch.Tensor.grad, torch.autograd.backward, sys.getprofile(), torch.is_anomaly_enabled())
    assert "grad" not in vars(torch.Tensor)


def test_nodes_are_told_by_the_line_that_made_them():
    model = nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = torch.tensor([0, 1, 1, 2])

    def step():
        made = model(torch.ones(8, 16))
        loss = made[rows].sum()  # INDEXED
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    found = Training([optimizer]).run(step)
    assert found.steps == 2
    assert found.seconds > 0
    indexed = next(each for each in found.lines if each.node == "IndexBackward0")
    assert (indexed.place.file, indexed.place.line, indexed.runs) == (__file__, line_of("INDEXED"), 1.0)
    assert indexed.place.function.endswith("<locals>.step")


def test_passes_over_one_graph_that_only_add_up_are_counted():
    trunk, heads = nn.Linear(16, 16), nn.ModuleList(nn.Linear(16, 2) for _ in range(3))
    optimizer = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=0.1)

    def step():
        hidden = trunk(torch.ones(8, 16))
        for head in heads:
            head(hidden).sum().backward(retain_graph=True)  # PASSED
        optimizer.step()
        optimizer.zero_grad()

    (call,) = Training([optimizer]).run(step).calls
    assert (call.place.line, call.passes) == (line_of("PASSED"), 3.0)
    assert 0 < call.again_s < call.seconds


@pytest.mark.parametrize("between", ["zeroed", "read", "changed"])
def test_passes_between_which_gradients_are_looked_at_do_not_add_up(between):
    trunk, heads = nn.Linear(16, 16), nn.ModuleList(nn.Linear(16, 2) for _ in range(3))
    optimizer = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=0.1)

    def step():
        hidden = trunk(torch.ones(8, 16))
        for head in heads:
            head(hidden).sum().backward(retain_graph=True)
            if between == "zeroed":
                optimizer.zero_grad()
            elif between == "read":
                trunk.weight.grad.clone()
            else:
                nn.utils.clip_grad_norm_(trunk.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()

    (call,) = Training([optimizer]).run(step).calls
    assert call.again_s == 0


def test_passes_from_two_lines_add_up_until_a_weight_is_changed():
    trunk, heads = nn.Linear(16, 16), [nn.Linear(16, 2) for _ in range(3)]
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (trunk, *heads)]

    def step():
        hidden = trunk(torch.ones(8, 16))
        heads[0](hidden).sum().backward(retain_graph=True)
        heads[1](hidden).sum().backward(retain_graph=True)  # SECOND
        optimizers[0].zero_grad()
        heads[2](hidden).sum().backward()
        for each in optimizers:
            each.step()
            each.zero_grad()

    calls = Training(optimizers).run(step).calls
    assert [each.place.line for each in calls if each.again_s > 0] == [line_of("SECOND")]


def judged(training, maker, judge, optimizers):
    def step():
        made = maker(torch.ones(4, 8))
        optimizers[1].zero_grad()
        judge(made).mean().backward(retain_graph=True)  # THROWN
        optimizers[1].step()
        optimizers[0].zero_grad()
        judge(made).square().mean().backward()
        optimizers[0].step()
        if training.offered:
            training.offered[0][1](True)

    return step


def test_gradients_of_a_network_that_another_loss_walks_through_are_thrown_away():
    weights = []
    for watched in (True, False):
        torch.manual_seed(0)
        maker, judge = nn.Linear(8, 8), nn.Linear(8, 1)
        optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (maker, judge)]
        training = Training(optimizers, watched=watched)
        found = training.run(judged(training, maker, judge, optimizers), steps=20)
        weights.append([*maker.parameters(), *judge.parameters()])
        if watched:
            (lost,) = found.needless
            assert (lost.place.line, lost.parameters, lost.on_the_way) == (line_of("THROWN"), 2, False)
            assert [name for name, _ in training.offered] == ["discarded"]
    assert all(map(torch.equal, *weights))  # the trial is without them


@pytest.mark.parametrize("critic_steps", [2, 5])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_gradients_that_pile_up_until_a_later_step_throws_them_away_are_told_wherever_looking_begins(
    critic_steps, first
):
    painter, judge = nn.Linear(8, 8), nn.Linear(8, 1)
    painting, judging = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (painter, judge))
    number = first

    def step():
        nonlocal number
        number += 1
        of_painter = number % (critic_steps + 1) == 0
        optimizer = painting if of_painter else judging
        optimizer.zero_grad()
        if of_painter:
            judge(painter(torch.ones(4, 8))).mean().backward()
        else:
            (judge(torch.ones(4, 8)) - judge(painter(torch.ones(4, 8)))).mean().backward()  # JUDGED
        optimizer.step()

    training = Training([painting, judging])
    found = training.run(step, steps=26).needless
    assert (line_of("JUDGED"), 2) in [(each.place.line, each.parameters) for each in found]
    assert [name for name, _ in training.offered] == ["discarded"]


def test_weights_on_the_way_of_a_gradient_are_told_where_nothing_else_is_thrown_away():
    actor, critic = nn.Linear(8, 8), nn.Linear(8, 1)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (actor, critic)]

    def step():
        optimizers[1].zero_grad()
        critic(torch.ones(4, 8)).mean().backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        critic(actor(torch.ones(4, 8))).mean().backward()  # ACTED
        optimizers[0].step()

    (lost,) = Training(optimizers).run(step).needless
    assert (lost.place.line, lost.parameters, lost.on_the_way) == (line_of("ACTED"), 2, True)


def test_the_gradient_of_an_input_that_nobody_reads_is_found():
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(read=False):
        x = torch.ones(8, 16, requires_grad=True)
        optimizer.zero_grad()
        model(x).sum().backward()
        if read:
            x.grad.sign()
        optimizer.step()

    (found,) = Training([optimizer]).run(step).needless
    assert (found.inputs, found.parameters, found.num_bytes) == (1, 0, 4 * 8 * 16)
    assert Training([optimizer]).run(lambda: step(read=True)).needless == ()


def test_micro_batches_and_joint_optimizers_throw_nothing_away():
    model, head = nn.Linear(16, 16), nn.Linear(16, 4)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, head)]

    def step():
        for _ in range(3):
            head(model(torch.ones(8, 16))).sum().backward()
        for each in optimizers:
            each.step()
            each.zero_grad()

    found = Training(optimizers).run(step)
    assert found.needless == ()
    assert found.calls[0].again_s == 0


def test_what_a_fused_optimizer_reads_is_not_thrown_away():
    """It writes to weights without counting that."""
    model = nn.Linear(16, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)

    def step():
        out = model(torch.ones(8, 16)).sum()
        optimizer.zero_grad()
        out.backward()
        optimizer.step()

    assert Training([optimizer]).run(step).needless == ()


def test_parameters_whose_gradients_nobody_reads_are_told_to_other_probes():
    model, target = nn.Linear(8, 1), nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(read=False):
        optimizer.zero_grad()
        (model(torch.ones(4, 8)) - target(torch.ones(4, 8))).square().mean().backward()
        optimizer.step()
        if read:
            target.bias.data -= 0.1 * target.bias.grad
        target.load_state_dict(model.state_dict())

    for read, expected in ((False, {"weight", "bias"}), (True, {"weight"})):
        training = Training([optimizer])
        training.run(lambda read=read: step(read))
        unread = training.context.unread
        assert {name for name, one in target.named_parameters() if id(one) in unread} == expected


def test_an_input_whose_gradient_another_pass_asks_for_is_told_so():
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        points = torch.rand(8, 2).requires_grad_()
        value = model(points)
        slope = torch.autograd.grad(value.sum(), points, create_graph=True)[0]
        optimizer.zero_grad()
        (slope.square().mean() + value.square().mean()).backward()
        optimizer.step()

    (found,) = Training([optimizer]).run(step).needless
    assert (found.inputs, found.parameters, found.asked_for) == (1, 0, True)


def test_gradients_that_are_zero_when_they_are_made_are_not_thrown_away():
    model, head = nn.Linear(16, 16), nn.Linear(16, 4)
    nn.init.zeros_(head.weight)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.0)

    def step():
        for _ in range(2):
            head(model(torch.ones(8, 16))).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    assert Training([optimizer]).run(step).needless == ()


def test_an_optimizer_may_step_while_a_step_ends():
    """Where no loader marks them, steps end inside the optimizer's own hooks."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training, numbers = Training([optimizer]), iter(range(1, 100))

    def ends(*_):
        training.watch.step(Step(start_ns=0, wall_ns=10**7, phases_ns=(0,) * 8), next(numbers))

    optimizer.register_step_pre_hook(ends)
    for _ in range(STEPS):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    training.seams.undo()
    assert training.watch.facts().steps == 2


def test_steps_may_end_while_torch_calls_the_hooks_of_all_optimizers():
    """So they do where no loader marks them: whoever adds a hook then, or takes one away, ends the script."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training, numbers = Training([optimizer]), iter(range(1, 100))

    def ends(*_):
        training.watch.step(Step(start_ns=0, wall_ns=10**7, phases_ns=(0,) * 8), next(numbers))

    handle = register_optimizer_step_pre_hook(ends)
    try:
        for _ in range(STEPS):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    finally:
        handle.remove()
        training.seams.undo()
    assert training.watch.facts().steps == 2


def test_rows_of_a_table_that_a_step_reads_are_counted():
    table, tied = nn.Embedding(2000, 8), nn.Embedding(2000, 8)
    optimizer = torch.optim.Adam([*table.parameters(), *tied.parameters()])

    def step():
        rows = torch.tensor([1, 5, 5, 7])
        seen = table(rows) + tied(rows)  # READ
        (seen @ tied.weight.t()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    (found,) = Training([optimizer]).run(step).tables
    assert (found.rows, found.columns, found.touched, found.node) == (2000, 8, 3, "EmbeddingBackward0")
    assert (found.of_optimizer, found.optimizer, found.place.line) == (0.5, "Adam", line_of("READ"))


def test_a_pass_that_makes_a_graph_is_charged_with_what_follows_from_it():
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        x = torch.ones(8, 16, requires_grad=True)
        slope = torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]  # MADE
        optimizer.zero_grad()
        slope.square().sum().backward()
        optimizer.step()

    calls = {each.place.line: each for each in Training([optimizer]).run(step).calls}
    made = calls.pop(line_of("MADE"))
    (rest,) = calls.values()
    assert (made.creates_graph, made.passes, rest.creates_graph) == (True, 1.0, False)
    assert 0 < made.doubled_s <= rest.seconds
    assert rest.again_s == 0


def test_a_script_that_detects_anomalies_keeps_its_mode():
    model = nn.Linear(4, 4)
    optimizer, training, modes = torch.optim.SGD(model.parameters(), lr=0.1), None, []

    def step():
        if len(modes) == 8:
            torch.autograd.set_detect_anomaly(True)
        modes.append(torch.is_anomaly_enabled())
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()

    training = Training([optimizer])
    try:
        training.run(step)
        assert modes[9:] == [True] * (STEPS - 9)
    finally:
        torch.autograd.set_detect_anomaly(False)


def test_transforms_of_functions_are_left_alone():
    weight = torch.ones(4)

    def step():
        torch.func.grad(lambda w: (w * torch.ones(4)).sum())(weight)

    training = Training()
    assert training.run(step) is None
    assert training.seams.hits()["torch.autograd:grad"] == 0


def test_a_look_that_fails_lets_the_training_go_on(monkeypatch):
    def fails(roots):
        raise RuntimeError("no graph")

    monkeypatch.setattr("flatout.probe.backward.backward_passes.graph_of", fails)
    assert all(map(torch.equal, trained(True), trained(False)))


def test_long_steps_are_looked_at_once():
    model = nn.Linear(4, 4)
    training = Training([torch.optim.SGD(model.parameters(), lr=0.1)])
    for number in range(1, 12):
        model(torch.ones(2, 4)).sum().backward()
        training.watch.step(Step(start_ns=0, wall_ns=10**9, phases_ns=(0,) * 8), number)
    training.watch.stop()
    training.seams.undo()
    assert training.watch.facts().steps == 1
