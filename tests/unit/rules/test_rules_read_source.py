"""Rules that look at the user's source tell fault from habit."""

import textwrap

import pytest

from flatout.rules import example, find, line
from flatout.rules.co004_python_in_forward import RULE as PYTHON_IN_FORWARD
from flatout.rules.co023_python_in_backward import RULE as PYTHON_IN_BACKWARD
from flatout.rules.core.example import steps_of
from flatout.rules.ho001_python_work_in_step import RULE as PYTHON_WORK
from flatout.rules.in008_hand_written_loader import RULE as HAND_WRITTEN
from flatout.schema.backward import BackwardFacts, BackwardPython
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, LoaderFacts


@pytest.fixture
def script(tmp_path):
    """Write a script, and return a function that gives (file, line, function) of a line by its comment."""

    def write(text):
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(text))
        rows = path.read_text().splitlines()
        return lambda mark, function: (str(path), next(i for i, r in enumerate(rows, 1) if f"# {mark}" in r), function)

    return write


def forward(*frames, seconds=1.0, leaf="torch"):
    return line(seconds, *frames, phase=Phase.FORWARD, leaf=leaf)


def applied(rule, truth):
    return rule.check(truth.run, truth.breakdown, truth.headroom)


PICKING = """
class Net:
    def forward(self, x, neighbours):
        mean = []
        for row in neighbours:
            {turn}  # turn
        return self.head(torch.stack(mean))
def train(loader):
    for x, y in loader:
        out = model(x, y)  # model
"""


@pytest.mark.parametrize(
    ("turn", "most"),
    [
        ("mean.append(x[row].mean(0))", 10.0),
        ("mean.append(torch.stack([x[k] for k in row]).sum(0) * float(len(row)))", 10.0),
        ("mean.append(x[row] @ self.weight)", 2.41),
        ("mean.append(self.own(x[row]))", 2.41),
        ("mean.append(F.linear(x[row], self.weight))", 2.41),
        ("mean.append(pooled(x[row]))", 2.41),
        ("mean.append(self.update(x[row], x))", 2.41),
        ("h @= x[row]", 2.41),
    ],
)
def test_of_a_loop_that_only_picks_and_sums_nothing_stays(script, turn, most):
    at = script(PICKING.replace("{turn}", turn))
    lines = [forward(at("turn", "Net.forward"), at("model", "train"))]
    found = applied(PYTHON_IN_FORWARD, example(step_ms=100, forward=40, backward=50, lines=lines))
    assert found.max_speedup == pytest.approx(most, rel=0.01)


RECURRENT = """
class Cell:
    def forward(self, x, h):
        return tanh(self.a(x) + self.b(h))  # cell
class Net:
    def forward(self, x):
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)  # step
        return self.head(h)  # head
def train(loader):
    for x, y in loader:
        out = model(x)  # model
"""
STACKED = RECURRENT.replace("range(x.size(1))", "range(self.num_layers)")


def in_forward(at):
    train = at("model", "train")
    return [
        forward(at("cell", "Cell.forward"), at("step", "Net.forward"), train, seconds=2.0),
        forward(at("head", "Net.forward"), train, seconds=0.5),
    ]


def test_a_loop_over_time_steps_is_found_through_the_cell_it_calls(script):
    at = script(RECURRENT)
    found = applied(PYTHON_IN_FORWARD, example(step_ms=100, forward=40, backward=50, lines=in_forward(at)))
    assert found.location.line == at("cell", "")[1]
    assert found.share == pytest.approx(0.4 * 0.8)
    assert "line 7" in found.message


def test_a_loop_over_layers_is_healthy(script):
    at = script(STACKED)
    assert applied(PYTHON_IN_FORWARD, example(step_ms=100, forward=40, backward=50, lines=in_forward(at))) is None


def test_an_ordinary_forward_inside_a_training_loop_over_rows_is_healthy(script):
    at = script("""
    class Net:
        def forward(self, x):
            return self.conv(x)  # conv
    def train(rows):
        for row in rows:
            out = model(row)  # model
    """)
    lines = [forward(at("conv", "Net.forward"), at("model", "train"))]
    assert applied(PYTHON_IN_FORWARD, example(step_ms=100, forward=40, backward=50, lines=lines)) is None


LOSSES = """
def pair_loss(a, b):
    return (a - b).abs().sum()  # pair
def loss_of(out):
    total = 0
    for i in range(len(out)):
        total += pair_loss(out[i], out[0])  # loop
    return total
def train(loader):
    for x, y in loader:
        loss = loss_of(model(x))  # call
        loss = ((out - y) ** 2).mean()  # whole
        loss.backward()
"""


def test_a_loss_written_as_a_loop_is_python_work(script):
    at = script(LOSSES)
    stack = (at("pair", "pair_loss"), at("loop", "loss_of"), at("call", "train"))
    lines = [line(1.0, *stack, phase=Phase.HOST, part="loss")]
    assert applied(PYTHON_WORK, example(step_ms=100, forward=40, backward=40, lines=lines)) is not None


def test_a_loss_on_whole_tensors_is_not(script):
    at = script(LOSSES)
    lines = [line(1.0, at("whole", "train"), phase=Phase.HOST, part="loss")]
    assert applied(PYTHON_WORK, example(step_ms=100, forward=40, backward=40, lines=lines)) is None


def test_a_loop_in_the_loss_counts_as_forward_time_once_the_account_says_so(script):
    at = script(LOSSES)
    train = at("call", "train")
    lines = [
        line(1.0, at("pair", "pair_loss"), at("loop", "loss_of"), train, phase=Phase.FORWARD, part="loss"),
        line(1.0, at("whole", "train"), phase=Phase.FORWARD, part="loss"),
    ]
    found = applied(PYTHON_IN_FORWARD, example(step_ms=100, forward=40, backward=40, lines=lines))
    assert found.location.line == at("pair", "")[1]
    assert found.share == pytest.approx(0.2)


def test_a_loss_in_numpy_leaves_torch(script):
    at = script(LOSSES)
    lines = [line(1.0, at("whole", "train"), phase=Phase.FORWARD, part="loss", leaf="numpy")]
    assert applied(PYTHON_IN_FORWARD, example(step_ms=100, forward=40, lines=lines)).location.line == at("whole", "")[1]


def test_a_loss_on_whole_tensors_is_healthy_forward_time(script):
    at = script(LOSSES.replace("in loader", "in rows"))
    lines = [line(1.0, at("whole", "train"), phase=Phase.FORWARD, part="loss")]
    assert applied(PYTHON_IN_FORWARD, example(step_ms=100, forward=40, lines=lines)) is None


GENERATOR = """
def stream(data):
    for i in range(0, len(data), 64):
        yield convert(data[i : i + 64])  # convert
def metric(x):
    return [one(v) for v in x]  # metric
def train(data):
    for x in stream(data):  # for
        metric(model(x))  # use
"""


def host(*frames, part="lead", seconds=1.0):
    return line(seconds, *frames, phase=Phase.HOST, part=part)


def test_a_generator_counted_as_host_time_is_a_hand_written_loader_and_not_python_work(script):
    at = script(GENERATOR)
    truth = example(step_ms=100, forward=30, lines=[host(at("convert", "stream"), at("for", "train"))])
    assert [f.code for f in find(truth.run, truth.breakdown)] == ["IN008"]


def test_the_same_generator_around_a_data_loader_is_not(script):
    at = script(GENERATOR)
    fed = LoaderFacts(is_training=True, epochs_started=1, fetches=60)
    truth = example(step_ms=100, forward=30, loaders=(fed,), lines=[host(at("convert", "stream"), at("for", "train"))])
    assert applied(HAND_WRITTEN, truth) is None
    assert applied(PYTHON_WORK, truth) is not None


def test_work_after_the_step_is_python_work_and_not_a_loader(script):
    at = script(GENERATOR)
    truth = example(step_ms=100, forward=30, lines=[host(at("metric", "metric"), at("use", "train"), part="tail")])
    assert [f.code for f in find(truth.run, truth.breakdown)] == ["HO001"]


MONITORED = """
class Monitor:
    def update(self, outputs):
        self.right += nearest(outputs)  # update
    def worst(self):
        return sorted(self.seen)  # worst
def train(batches, monitor):
    for x in batches:
        loss = criterion(model(x))  # forward
        loss.backward()  # backward
        optimizer.step()  # step
        monitor.update(outputs)  # call
        found = monitor.worst()  # sibling
        other(found)  # other
train(batches, Monitor())  # whole
"""


@pytest.mark.parametrize("part", ["tail", "lead"])  # without a loader, what follows the step leads the next one
def test_what_one_statement_after_the_step_costs_goes_together(script, part):
    at = script(MONITORED)
    outer = at("whole", "<module>")
    update = (at("update", "Monitor.update"), at("call", "train"), outer)
    lines = [
        line(1.0, at("forward", "train"), outer, phase=Phase.FORWARD),
        line(1.0, at("backward", "train"), outer, phase=Phase.BACKWARD),
        line(1.0, at("step", "train"), outer, phase=Phase.OPTIMIZER),
        host(*update, part=part, seconds=1.0),
        line(2.0, *update, phase=Phase.HOST, part=part, leaf="torch"),
        host(at("worst", "Monitor.worst"), at("sibling", "train"), outer, part=part, seconds=0.5),
        host(at("other", "train"), outer, part=part, seconds=0.5),
    ]
    found = applied(PYTHON_WORK, example(step_ms=100, forward=60, lines=lines))
    assert found.location.function == "Monitor.update"
    assert found.share == pytest.approx(0.4 * 3.5 / 4.0)
    assert "below `train` (train.py:12), part of it in `Monitor.update` (train.py:4)" in found.message


def test_the_little_that_a_statement_costs_besides_is_counted_and_not_spoken_of(script):
    at = script(MONITORED)
    outer = at("whole", "<module>")
    lines = [
        line(1.0, at("forward", "train"), outer, phase=Phase.FORWARD),
        line(1.0, at("backward", "train"), outer, phase=Phase.BACKWARD),
        line(1.0, at("step", "train"), outer, phase=Phase.OPTIMIZER),
        host(at("update", "Monitor.update"), at("call", "train"), outer, part="tail", seconds=2.0),
        line(0.1, at("call", "train"), outer, phase=Phase.HOST, part="tail", leaf="torch"),
        host(at("other", "train"), outer, part="tail", seconds=0.4),
    ]
    found = applied(PYTHON_WORK, example(step_ms=100, forward=60, lines=lines))
    assert found.share == pytest.approx(0.4 * 2.1 / 2.5)
    assert "Python in the training loop, in `Monitor.update` (train.py:4)" in found.message


AROUND_THE_STEP = """
def train(batches):
    for x in batches:
        with accumulate(model):
            loss = criterion(model(x))  # forward
            loss.backward()  # backward
            optimizer.step()  # step
            first(outputs)  # call
            second(outputs)  # sibling
train(batches)  # whole
"""
TRAINER = """
class Trainer:
    def train(self):
        for x in self.batches:
            loss = criterion(model(x))  # forward
            loss.backward()  # backward
            optimizer.step()  # step
            self.first()  # call
            self.second()  # sibling
Trainer().train()  # whole
"""
TWO_STEPS = """
def train(batches):
    for x in batches:
        critic(x).backward()  # backward
        first(x)  # call
        optimizer.step()  # step
        second(x)  # sibling
train(batches)  # whole
"""


@pytest.mark.parametrize(
    ("text", "function"),
    [
        pytest.param(AROUND_THE_STEP, "first", id="a block around the step"),
        pytest.param(TRAINER, "Trainer.first", id="the class that trains"),
        pytest.param(TWO_STEPS, "first", id="before the last step"),
    ],
)
def test_what_only_stands_beside_the_function_is_not_counted(script, text, function):
    at = script(text)
    train = "Trainer.train" if "class" in text else "train"
    outer = at("whole", "<module>")
    lines = [
        line(1.0, at("backward", train), outer, phase=Phase.BACKWARD),
        line(1.0, at("step", train), outer, phase=Phase.OPTIMIZER),
        host((at("call", train)[0], 90, function), at("call", train), outer, part="tail", seconds=1.0),
        host(
            (at("call", train)[0], 80, function.replace("first", "second")),
            at("sibling", train),
            outer,
            part="tail",
            seconds=0.9,
        ),
    ]
    found = applied(PYTHON_WORK, example(step_ms=100, forward=60, lines=lines))
    assert (found.location.function, found.share) == (function, pytest.approx(0.4 / 1.9))


def test_a_loop_of_the_module_has_statements_too(script):
    text = MONITORED.replace("def train(batches, monitor):\n", "").replace("train(batches, Monitor())", "end()")
    at = script(text.replace("\n    for x", "\nfor x"))
    call = (at("call", "<module>"),)
    lines = [
        line(1.0, at("backward", "<module>"), phase=Phase.BACKWARD),
        line(1.0, at("step", "<module>"), phase=Phase.OPTIMIZER),
        host(at("update", "Monitor.update"), *call, seconds=1.0),
        line(2.0, at("update", "Monitor.update"), *call, phase=Phase.HOST, part="lead", leaf="torch"),
    ]
    found = applied(PYTHON_WORK, example(step_ms=100, forward=60, lines=lines))
    assert found.share == pytest.approx(0.4)


def test_a_line_before_the_forward_pass_is_counted_alone(script):
    at = script(MONITORED.replace("        loss = ", "        x = monitor.clean(x)  # clean\n        loss = "))
    outer = at("whole", "<module>")
    clean = (at("update", "Monitor.update"), at("clean", "train"), outer)
    lines = [
        line(1.0, at("backward", "train"), outer, phase=Phase.BACKWARD),
        line(1.0, at("step", "train"), outer, phase=Phase.OPTIMIZER),
        host(*clean, seconds=1.0),
        line(2.0, *clean, phase=Phase.HOST, part="lead", leaf="torch"),
    ]
    found = applied(PYTHON_WORK, example(step_ms=100, forward=60, lines=lines))
    assert found.share == pytest.approx(0.4 / 3)


def test_a_second_cost_is_named_beside_the_one_that_grows():
    steps = steps_of([{Phase.HOST: 10 + 0.5 * i, Phase.FORWARD: 20} for i in range(60)])
    lines = [host(("m.py", 4, "auc"), part="tail", seconds=2.0), host(("m.py", 9, "check"), part="tail")]
    truth = example(steps=steps, lines=lines)
    found = {f.code: f.location.function for f in find(truth.run, truth.breakdown) if f.location}
    assert found == {"HO003": "auc", "HO001": "check"}


def test_growth_that_no_line_explains_leaves_no_python_work():
    steps = steps_of([{Phase.HOST: 10 + 0.5 * i, Phase.FORWARD: 20} for i in range(60)])
    truth = example(steps=steps, lines=[host(("m.py", 4, "auc"), part="tail", seconds=0.05)])
    assert [f.code for f in find(truth.run, truth.breakdown)] == ["HO003", "MS001"]


def test_host_time_without_a_user_line_is_nobodys_fault():
    truth = example(step_ms=100, forward=30, lines=[line(1.0, phase=Phase.HOST, leaf="threading")])
    assert find(truth.run, truth.breakdown) == ()


def test_printing_in_the_loop_is_logging_and_not_python_work(script):
    at = script("def train(loader):\n    for x in loader:\n        print(x)  # print\n")
    truth = example(step_ms=100, forward=30, lines=[host(at("print", "train"), part="tail")])
    assert [f.code for f in find(truth.run, truth.breakdown)] == ["HO002"]


PLAIN_FUNCTIONS = """
MEMBERS = 24
def member(w, k, x):
    return silu(x @ w[k])  # member
def predict(w, x):
    return stack([member(w, k, x) for k in range(MEMBERS)])  # predict
def main():
    for index in order.split(96):
        loss = predict(w, x[index]).square().mean()  # loss
        grads = torch.autograd.grad(loss, w)
        with torch.no_grad():
            w -= 0.1 * grads
"""


def test_a_forward_pass_in_plain_functions_is_looked_at_for_loops(script):
    at = script(PLAIN_FUNCTIONS)
    stack = (at("member", "member"), at("predict", "predict"), at("loss", "main"))
    in_loop = line(2.0, *stack, phase=Phase.FORWARD, part="lead", leaf="torch")
    found = applied(PYTHON_IN_FORWARD, example(step_ms=10, forward=3, backward=6, lines=[in_loop]))
    assert found.location.line == stack[0][1]
    outside = line(2.0, at("loss", "main"), phase=Phase.FORWARD, part="lead", leaf="numpy")
    assert applied(PYTHON_IN_FORWARD, example(step_ms=10, forward=3, backward=6, lines=[outside])) is None


ROUND = """
class Round(torch.autograd.Function):
    @staticmethod
    def backward(ctx, grad):
        kept = []
        for g in grad.flatten().tolist():  # numbers
            kept.append(g)  # kept
        return torch.tensor(kept)  # tensor
for x in loader:
    loss = Round.apply(model(x)).sum()
    loss.backward()  # walks
"""


def test_the_line_that_starts_the_backward_pass_is_not_what_calls_a_method_named_backward(script):
    at = script(ROUND)
    marks = ("numbers", "kept", "tensor")
    lines = [line(0.4, at(mark, "Round.backward"), at("walks", "<module>"), phase=Phase.BACKWARD) for mark in marks]
    entry = BackwardPython(place=Frame(*at("numbers", "Round.backward")), kind="function", runs=1, leaves={"tolist": 1})
    causes = Causes(
        lines=tuple(lines), num_steps=60, phases_s={Phase.BACKWARD: 1.2}, backward=BackwardFacts(python=(entry,))
    )
    found = applied(PYTHON_IN_BACKWARD, example(step_ms=100, forward=30, backward=60, causes=causes))
    assert found.location.line in {at(mark, "")[1] for mark in marks}
