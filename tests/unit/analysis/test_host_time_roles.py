"""Whose work the host's time is."""

import dataclasses

import pytest

from flatout.analysis.host_time_roles import assign_roles
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import (
    Causes,
    Frame,
    Header,
    LineCost,
    LoaderFacts,
    ModelFacts,
    OptimizerFacts,
    Outside,
    Run,
    Step,
)

MS = 1_000_000
NET = (ModelFacts(name="Net"),)

SCRIPT = """\
def batches():
    while True:
        yield load()

def load():
    return wait()

def wait():
    return 1

def train(model, x):
    out = model(x)
    loss = criterion(out)
    log(loss)
    loss.backward()
    optimizer.step()

for x in batches():
    report(x)
    train(model, x)
"""


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    return str(file)


def at(script, text, function):
    number = next(number for number, line in enumerate(SCRIPT.splitlines(), 1) if text in line)
    return Frame(script, number, function)


def run_of(costs, lead=60, loss=30, loaders=(), models=NET, torch_optimizer=True):
    host = (lead * MS, loss * MS, 10 * MS)
    phases = [0] * len(STEP_PHASES)
    phases[STEP_PHASES.index(Phase.BACKWARD)] = 50 * MS
    phases[STEP_PHASES.index(Phase.HOST)] = sum(host)
    step = Step(start_ns=0, wall_ns=sum(phases), phases_ns=tuple(phases), host_parts_ns=host)
    return Run(
        header=Header(script="train.py"),
        steps=(step,),
        causes=Causes(lines=tuple(costs)),
        loaders=loaders,
        models=models,
        optimizers=(OptimizerFacts(name="SGD"),) if torch_optimizer else (),
    )


def cost(phase, *stack, part="", seconds=1.0):
    return LineCost(process="main", phase=phase, part=part, stack=stack, seconds=seconds, samples=10)


def spent(run):
    step = run.steps[0]
    assert sum(step.phases_ns) == step.wall_ns
    assert sum(step.host_parts_ns) == step.phases_ns[STEP_PHASES.index(Phase.HOST)]
    return {phase.value: ns // MS for phase, ns in zip(STEP_PHASES, step.phases_ns, strict=True) if ns}


def outer(script, text):
    number = max(number for number, line in enumerate(SCRIPT.splitlines(), 1) if text in line)
    return Frame(script, number, "<module>")


@pytest.fixture
def way(script):
    """The backward pass below the training loop."""
    return cost(Phase.BACKWARD, at(script, "loss.backward", "train"), outer(script, "train(model, x)"))


def test_a_generator_s_work_is_input_and_the_rest_stays_host(script, way):
    made = cost(
        Phase.HOST,
        at(script, "return wait", "load"),
        at(script, "yield load", "batches"),
        outer(script, "for x in batches"),
        part="lead",
        seconds=2.0,
    )
    logged = cost(Phase.HOST, outer(script, "report(x)"), part="lead", seconds=1.0)
    run = assign_roles(run_of([way, made, logged]))
    assert spent(run) == {"input": 40, "backward": 50, "host": 60}
    assert [(line.phase, line.stage) for line in run.causes.lines[1:]] == [(Phase.INPUT, "generator"), (Phase.HOST, "")]


def test_the_loss_is_part_of_the_forward_pass_and_a_log_is_not(script, way):
    loss = cost(Phase.HOST, at(script, "criterion(out)", "train"), outer(script, "train(model, x)"), part="loss")
    log = cost(Phase.HOST, at(script, "log(loss)", "train"), outer(script, "train(model, x)"), part="loss", seconds=2.0)
    assert spent(assign_roles(run_of([way, loss, log]))) == {"forward": 10, "backward": 50, "host": 90}


def test_a_function_that_both_input_and_backward_call(script):
    shared = at(script, "return 1", "wait")
    way = cost(Phase.BACKWARD, shared, at(script, "loss.backward", "train"), outer(script, "train(model, x)"))
    made = cost(Phase.HOST, shared, at(script, "yield load", "batches"), outer(script, "for x in batches"), part="lead")
    assert spent(assign_roles(run_of([way, made]))) == {"input": 60, "backward": 50, "host": 40}


def test_what_is_made_as_an_argument_of_the_training_call(script, way):
    made = cost(Phase.HOST, at(script, "return wait", "load"), outer(script, "train(model, x)"), part="lead")
    assert spent(assign_roles(run_of([way, made])))["input"] == 60


def test_the_training_call_itself_is_no_input(script, way):
    waits = cost(Phase.HOST, at(script, "loss.backward", "train"), outer(script, "train(model, x)"), part="lead")
    assert "input" not in spent(assign_roles(run_of([way, waits])))


def test_with_a_training_loader_the_time_before_the_forward_pass_stays_host(script, way):
    made = cost(Phase.HOST, outer(script, "for x in batches"), part="lead")
    loaders = (LoaderFacts(is_training=True),)
    assert spent(assign_roles(run_of([way, made], loaders=loaders))) == {"backward": 50, "host": 100}
    validating = (LoaderFacts(is_training=False),)
    assert spent(assign_roles(run_of([way, made], loaders=validating)))["input"] == 60


def test_without_causes_or_lines_nothing_moves(script):
    run = Run(header=Header(script="train.py"))
    assert assign_roles(run) is run
    bare = run_of([])
    assert assign_roles(bare) is bare


def test_sources_that_are_gone_move_nothing(tmp_path):
    gone = str(tmp_path / "gone.py")
    way = cost(Phase.BACKWARD, Frame(gone, 9, "train"))
    made = cost(Phase.HOST, Frame(gone, 3, "train"), part="lead")
    assert spent(assign_roles(run_of([way, made]))) == {"backward": 50, "host": 100}


def test_rare_ways_to_backward_do_not_count(script, way):
    rare = cost(Phase.BACKWARD, outer(script, "report(x)"), seconds=0.01)
    made = cost(Phase.HOST, outer(script, "report(x)"), part="lead")
    assert "input" not in spent(assign_roles(run_of([way, rare, made])))


def test_without_modules_what_feeds_the_backward_pass_is_the_forward_pass(script, way):
    made = cost(Phase.HOST, at(script, "return wait()", "load"), outer(script, "for x in batches()"), part="lead")
    found = spent(assign_roles(run_of([way, made], models=())))
    assert found["forward"] == 60
    assert "input" not in found


BY_HAND = """\
for epoch in range(9):
    table = build()
    for x in table:
        loss = model(x)
        loss.backward()
        with torch.no_grad():
            for p in params:
                g = clip(p.grad)
                p.sub_(g)
        log(loss)
"""


def test_an_update_by_hand_is_the_optimizer_and_what_comes_once_an_epoch_lies_between(tmp_path):
    file = tmp_path / "by_hand.py"
    file.write_text(BY_HAND)
    place = [Frame(str(file), number, "<module>") for number in range(12)]
    lines = [
        cost(Phase.BACKWARD, place[5]),
        cost(Phase.HOST, place[2], part="lead"),
        cost(Phase.HOST, place[9], part="tail", seconds=3.0),
        cost(Phase.HOST, place[10], part="tail"),
    ]
    run = run_of(lines, torch_optimizer=False)
    usual = run.steps[0]._replace(host_parts_ns=(2 * MS, 30 * MS, 40 * MS))
    phases = [0] * len(STEP_PHASES)
    phases[STEP_PHASES.index(Phase.HOST)] = 72 * MS
    usual = usual._replace(phases_ns=tuple(phases), wall_ns=72 * MS)
    lump = usual._replace(
        host_parts_ns=(602 * MS, 30 * MS, 40 * MS),
        phases_ns=tuple(ns + 600 * MS if ns else 0 for ns in phases),
        wall_ns=672 * MS,
    )
    found = assign_roles(dataclasses.replace(run, steps=(usual, usual, lump, usual, usual)))
    assert [stretch.wall_ns for stretch in found.outside] == [600 * MS]
    assert {stretch.phase for stretch in found.outside} == {Phase.EPOCH_GAP}
    assert {step.wall_ns for step in found.steps} == {72 * MS}
    assert {step.phases_ns[STEP_PHASES.index(Phase.OPTIMIZER)] for step in found.steps} == {30 * MS}
    assert [cost.phase for cost in found.causes.lines] == [
        Phase.BACKWARD,
        Phase.EPOCH_GAP,
        Phase.OPTIMIZER,
        Phase.HOST,
    ]


MINING = """\
def encode(model, texts):
    return [model(text) for text in texts]

def check(model):
    return [model(text) for text in held_out]

def main(model):
    for epoch in range(9):
        hard = encode(model, texts)
        for rows in order():
            loss = model(texts[rows], hard[rows])
            loss.backward()
        print(check(model))
"""


@pytest.mark.parametrize(
    ("function", "inner", "outer", "expected"),
    [("encode", 2, 9, Phase.EPOCH_GAP), ("check", 5, 13, Phase.VALIDATION)],
)
def test_passes_that_make_what_the_next_epoch_is_trained_on_are_no_validation(
    tmp_path, function, inner, outer, expected
):
    file = tmp_path / "mining.py"
    file.write_text(MINING)
    main = (str(file), outer, "main")
    costs = (
        cost(Phase.BACKWARD, Frame(str(file), 12, "main")),
        cost(Phase.VALIDATION, Frame(str(file), inner, function), Frame(*main)),
    )
    run = run_of(costs)
    run = dataclasses.replace(run, outside=(Outside(phase=Phase.VALIDATION, start_ns=0, wall_ns=MS),))
    found = assign_roles(run)
    assert found.outside[0].phase == expected
    assert found.causes.lines[1].phase == expected


LOGGED = """\
def training_step(module, batch):
    out = module.net(batch)
    module.log(area(out))
    return criterion(out)

def fit(module):
    for batch in batches:
        loss = training_step(module, batch)
        loss.backward()
"""


def test_a_metric_within_a_training_step_is_no_part_of_the_loss(tmp_path):
    file = tmp_path / "framework.py"
    file.write_text(LOGGED)
    call = Frame(str(file), 8, "fit")
    costs = (
        cost(Phase.BACKWARD, Frame(str(file), 9, "fit")),
        cost(Phase.HOST, Frame(str(file), 3, "training_step"), call, part="loss"),
        cost(Phase.HOST, Frame(str(file), 4, "training_step"), call, part="loss"),
    )
    lines = assign_roles(run_of(costs)).causes.lines
    assert [each.phase for each in lines[1:]] == [Phase.HOST, Phase.FORWARD]
