"""Python work in the loop, told from computation, from output and from making batches."""

import pytest

from flatout.rules import example, line
from flatout.rules.facts.host_python import hook_work, python_work, writing
from flatout.schema.facts import Frame, LoaderFacts
from flatout.schema.phase import Phase

SOURCE = """\
def train(loader):
    for x, y in loader:
        loss = weigh(model(x), y)
        smooth(loss)
def weigh(out, y):
    for row in out:
        total = row.sum()
    return out.mean()
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    return str(path)


def host(seconds, *frames, **detail):
    return line(seconds, *frames, phase=Phase.HOST, **detail)


def spent(costs):
    return sum(cost.seconds for cost in costs)


def test_output_is_told_from_work():
    printing = host(0.2, ("log.py", 3, "log_line"))
    drawing = host(0.3, ("train.py", 4, "show"), leaf="matplotlib")
    work = host(0.4, ("train.py", 5, "smooth"))
    run = example(lines=[printing, drawing, work]).run
    assert writing(run) == (printing, drawing)
    assert python_work(run) == (work,)


@pytest.mark.parametrize(
    ("place", "detail", "counts"),
    [
        (3, {"leaf": "torch"}, False),  # one operation
        (3, {"part": "loss"}, False),  # most likely the loss
        (7, {"leaf": "torch"}, True),  # in a loop
        (7, {"part": "loss"}, True),
        (3, {"leaf": "numpy"}, True),
        (4, {"part": "tail"}, True),
    ],
)
def test_operations_of_torch_are_work_only_where_a_loop_calls_them(script, place, detail, counts):
    cost = host(0.4, (script, place, "weigh" if place == 7 else "train"), **detail)
    assert spent(python_work(example(lines=[cost]).run)) == (0.4 if counts else 0)


def test_time_without_a_user_line_is_nobodys_work():
    assert python_work(example(lines=[host(0.4)]).run) == ()


def test_the_call_of_a_loop_and_the_line_that_walks_a_loader_are_not_work():
    fit, walk = ("train.py", 9, "main"), ("train.py", 2, "train")
    lines = [line(0.5, fit, phase=phase) for phase in (Phase.FORWARD, Phase.BACKWARD)]
    lines += [host(0.4, fit), host(0.3, walk, part="tail"), host(0.2, walk, part="tail", leaf="numpy")]
    loader = LoaderFacts(is_training=True, fetches=10, iterated_at=Frame("train.py", 2, "train"))
    assert spent(python_work(example(lines=lines, loaders=(loader,)).run)) == pytest.approx(0.2)


def test_making_batches_before_the_forward_pass_is_input():
    cost = host(0.4, ("train.py", 5, "next_batch"), part="lead")
    assert python_work(example(lines=[cost]).run) == ()
    assert python_work(example(lines=[host(0.4, ("train.py", 5, "next_batch"), part="tail")]).run) != ()


HOOKS = """\
def watch(module, inputs, output):
    seen.append(np.linalg.svd(module.weight.detach().numpy()))
def scale(module, inputs, output):
    return output * module.gain
def make(name):
    def hook(module, inputs, output):
        kept[name] = output.abs().mean().item()
    return hook
def other(module):
    return module.weight.detach().numpy()
for part in model.children():
    part.register_forward_hook(watch)
    part.register_forward_hook(scale)
    part.register_forward_pre_hook(make("x"))
"""


@pytest.mark.parametrize(
    ("at", "name", "counts"),
    [
        (2, "watch", True),
        (7, "make.<locals>.hook", True),
        (4, "scale", False),  # part of the model
        (10, "other", False),  # no hook
    ],
)
def test_a_hook_that_only_watches_is_no_part_of_the_forward_pass(tmp_path, at, name, counts):
    path = tmp_path / "train.py"
    path.write_text(HOOKS)
    cost = line(0.4, (str(path), at, name), ("train.py", 3, "train"), phase=Phase.FORWARD, leaf="numpy")
    assert hook_work(example(lines=[cost]).run) == ((cost,) if counts else ())


def test_what_probes_of_a_deep_run_do_is_no_work_of_the_script():
    ours = host(0.4, ("train.py", 5, "train"), part="tail", leaf="flatout", leaf_function="look")
    assert python_work(example(lines=[ours]).run) == ()
