"""What lies between epochs is told apart: workers that restart, and the script's own code."""

from dataclasses import replace

import pytest

from flatout.rules import ep004_epoch_gap, ep006_long_startup, example, line
from flatout.rules.facts.gaps import between_epochs, own_gap_s, restart_s
from flatout.rules.facts.validation import passes, place, spent
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, CollectorFacts, Frame, Header, LoaderFacts, Outside

LOADER = LoaderFacts(
    is_training=True, num_workers=2, epochs_started=3, start_s=0.6, iterated_at=Frame("train.py", 40, "train")
)
STARTING = line(0.5, ("train.py", 40, "train"), phase=Phase.EPOCH_GAP, leaf="multiprocessing")
PLOTTING = line(0.3, ("plot.py", 5, "draw"), ("train.py", 60, "main"), phase=Phase.EPOCH_GAP, leaf="matplotlib")


def gap(seconds, loader=LOADER, lines=()):
    truth = example(step_ms=50, outside_s={Phase.EPOCH_GAP: seconds}, loaders=(loader,), lines=lines)
    return restart_s(truth.run, truth.breakdown, loader), own_gap_s(truth.run, loader)


def test_lines_divide_the_gap_between_the_restart_and_the_script():
    assert gap(0.8, lines=[STARTING, PLOTTING]) == (pytest.approx(0.5), pytest.approx(0.3))


WAITING = line(0.8, ("train.py", 70, "main"), phase=Phase.EPOCH_GAP, leaf="torch", leaf_function="all_reduce")


def test_waiting_for_other_ranks_is_neither():
    found = gap(1.6, replace(LOADER, start_s=0.0), lines=[STARTING, PLOTTING, WAITING])
    assert found == (pytest.approx(0.5), pytest.approx(0.3))
    assert gap(1.1, replace(LOADER, num_workers=0), lines=[PLOTTING, WAITING]) == (0.0, pytest.approx(0.3))


def test_without_lines_the_time_in_iter_tells():
    assert gap(0.8) == (pytest.approx(0.4), pytest.approx(0.4))


def test_with_nothing_to_tell_the_gap_is_the_restarts():
    assert gap(0.8, replace(LOADER, start_s=0.0)) == (pytest.approx(0.8), 0.0)


def test_workers_that_stay_leave_the_gap_to_the_script():
    assert gap(0.8, replace(LOADER, persistent_workers=True)) == (0.0, pytest.approx(0.8))
    assert gap(0.8, replace(LOADER, num_workers=0)) == (0.0, pytest.approx(0.8))


def test_the_first_epoch_restarts_nothing():
    assert gap(0.8, replace(LOADER, epochs_started=1))[0] == 0.0


def test_a_gap_before_the_first_step_is_none():
    before = Outside(phase=Phase.EPOCH_GAP, start_ns=0, wall_ns=10**9)
    later = [step._replace(start_ns=step.start_ns + 10**9) for step in example().run.steps]
    between = Outside(phase=Phase.EPOCH_GAP, start_ns=10**10, wall_ns=10**8)
    truth = example(steps=later, outside=(before, between))
    assert between_epochs(truth.run) == [between]
    assert own_gap_s(truth.run, None) == pytest.approx(0.1)


def test_a_validation_before_the_first_step_happens_once_and_does_not_count():
    before = Outside(phase=Phase.VALIDATION, start_ns=0, wall_ns=10**9)
    after = Outside(phase=Phase.VALIDATION, start_ns=10**11, wall_ns=2 * 10**9)
    truth = example(
        steps=[s._replace(start_ns=s.start_ns + 10**10) for s in example().run.steps], outside=(before, after)
    )
    assert passes(truth.run) == (after,)
    assert spent(truth.run, truth.breakdown) == (pytest.approx(2.0), 1)


VALIDATED = LoaderFacts(iterated_at=Frame("train.py", 80, "evaluate"))
MAIN = ("train.py", 30, "main")
FORWARD = (("model.py", 9, "Net.encode"), ("model.py", 5, "Net.forward"))


def validating(*lines, loaders=(VALIDATED,)):
    return place(example(loaders=loaders, lines=lines).run)


def below(seconds, *frames, **detail):
    return line(seconds, *frames, MAIN, phase=Phase.VALIDATION, **detail)


def test_validation_is_placed_at_the_hottest_line_of_the_function_that_loops_over_its_loader():
    model = below(2.0, *FORWARD, ("train.py", 82, "evaluate"))
    loading = below(1.0, ("data.py", 3, "Rows.__getitem__"), ("train.py", 80, "evaluate"), stage="sample")
    assert validating(model, loading) == Frame("train.py", 82, "evaluate")
    assert validating(below(0.5, *FORWARD, ("train.py", 82, "evaluate")), loading) == VALIDATED.iterated_at


def test_without_a_loader_validation_is_placed_below_all_callers_and_outside_the_model():
    model = below(2.0, *FORWARD, ("train.py", 82, "evaluate"))
    metric = below(0.3, ("train.py", 84, "evaluate"), leaf="numpy")
    assert validating(model, metric, loaders=()) == Frame("train.py", 82, "evaluate")


def test_without_lines_validation_is_placed_at_its_loader_if_there_is_one():
    assert validating() == VALIDATED.iterated_at
    assert validating(loaders=()) is None
    assert validating(line(1.0, *FORWARD, phase=Phase.VALIDATION), loaders=()) == Frame("model.py", 9, "Net.encode")


@pytest.mark.parametrize(("settles_s", "found"), [(5.0, False), (25.0, True)])
def test_slow_first_steps_of_a_whole_training_count_as_start_up(settles_s, found):
    truth = example(step_ms=100, n=600, forward=90, header=Header(script="train.py", mode="whole"))
    begun = replace(truth.breakdown, warmup=1, warmup_s=settles_s + 0.1, wall_s=60 + settles_s)
    finding = ep006_long_startup.check(truth.run, begun, ())
    assert (finding is not None) is found
    assert finding is None or finding.share == pytest.approx(25 / 85)


@pytest.mark.parametrize(
    ("collected_s", "asked_s", "said"),
    [
        (0.5, 0.0, "83% of it in Python's garbage collector. Freeze the objects that are alive after set-up"),
        (0.5, 0.4, "83% of it in Python's garbage collector. Remove the call that requests it"),
        (0.2, 0.2, "is spent between epochs. Do work that is the same in every epoch"),
    ],
)
def test_a_gap_that_is_the_garbage_collectors_is_called_that(collected_s, asked_s, said):
    collector = CollectorFacts(between_s=collected_s, between_asked_s=asked_s)
    seen = Causes(collector=collector, num_steps=100, between_epochs_s=0.6)
    truth = example(step_ms=50, n=100, forward=40, outside_s={Phase.EPOCH_GAP: 0.6}, causes=seen)
    assert said in ep004_epoch_gap.check(truth.run, truth.breakdown, ()).message


EPISODES = """\
class Embedder(nn.Module):
    def embed(self, images):
        return self.encoder(images)

    def validation_step(self, images):
        return self.encoder(images)


def evaluate(model, episodes):
    for images in episodes:
        answer = model.embed(images)
        count(model.validation_step(images))
"""


@pytest.mark.parametrize(("inner", "expected"), [((3, "Embedder.embed"), 11), ((6, "Embedder.validation_step"), 6)])
def test_a_validation_happens_where_the_model_is_called_and_not_in_its_own_methods(tmp_path, inner, expected):
    file = tmp_path / "episodes.py"
    file.write_text(EPISODES)
    number, function = inner
    caller = 11 if number == 3 else 12
    seen = line(1.0, (str(file), number, function), (str(file), caller, "evaluate"), phase=Phase.VALIDATION)
    assert place(example(step_ms=50, forward=40, lines=(seen,)).run).line == expected
