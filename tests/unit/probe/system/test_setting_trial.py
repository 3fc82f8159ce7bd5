"""What a deep run finds of a setting by switching it: blocks in turn, and the script's own in the end."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flatout.probe.core.seams import Seams
from flatout.probe.system import setting_trial
from flatout.probe.system.setting_trial import SettingTrialWatch, count_denormals
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import LoaderFacts, Step


def step(ms):
    column = STEP_PHASES.index(Phase.FORWARD)
    phases = tuple(round(ms * 1e6) if i == column else 0 for i in range(len(STEP_PHASES)))
    return Step(start_ns=0, wall_ns=sum(phases), phases_ns=phases)


class Loader:
    def __init__(self, num_workers):
        self.num_workers = num_workers
        self.facts = LoaderFacts()

    def ref(self):
        return self


@pytest.fixture
def threads(monkeypatch):
    """A machine of four cores, whose number of threads is a figure in a list."""
    state = [1]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)  # where it is, the CPU's threads are no matter
    monkeypatch.setattr(setting_trial, "usable_cores", lambda: 4)
    monkeypatch.setattr(setting_trial, "get_num_threads", lambda: state[-1])
    monkeypatch.setattr(setting_trial, "set_num_threads", state.append)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return state


def run_steps(watch, threads, count, ms):
    """Run steps, each lasting as long as `ms` says of the threads in force."""
    for number in range(1, count + 1):
        watch.step(step(ms(threads[-1], number)), number)
    watch.end()


def test_a_number_of_threads_that_is_slower_has_its_price_and_is_put_back(threads):
    watch = SettingTrialWatch(tuple, tuple)
    run_steps(watch, threads, 60, lambda now, number: (40 if now == 1 else 25) + number % 3)
    (price,) = watch.prices()
    assert (price.switch, price.own, price.tried) == ("threads", 1, 4)
    assert price.share == pytest.approx(1 - 26 / 41)
    assert (price.ordered, price.steps >= 8) == (1.0, True)
    assert threads[-1] == 1


def test_another_setting_is_priced_where_none_is_doubted(threads):
    threads.append(4)  # as many as there are cores
    watch, frozen = SettingTrialWatch(tuple, tuple), [False]
    for number in range(1, 60):
        watch.step(step(10 if frozen[-1] else 40), number)
        if number == 10:
            watch.offer("gradients", frozen.append)
    assert any(frozen)
    watch.end()
    (price,) = watch.prices()
    assert (price.switch, price.share, price.ordered) == ("gradients", 0.75, 1.0)
    assert frozen[-1] is False


def test_what_is_offered_waits_for_its_turn(threads):
    watch, frozen = SettingTrialWatch(tuple, tuple), [False]
    for number in range(1, 300):
        watch.step(step((10 if frozen[-1] else 40) * (1 if threads[-1] == 4 else 2)), number)
        if number == 10:
            watch.offer("gradients", frozen.append)
        assert threads[-1] == 1 or not frozen[-1]
    watch.end()
    assert [(price.switch, price.share) for price in watch.prices()] == [("threads", 0.5), ("gradients", 0.75)]
    assert (threads[-1], frozen[-1]) == (1, False)


def test_a_number_that_makes_no_difference_has_no_order(threads):
    watch = SettingTrialWatch(tuple, tuple)
    run_steps(watch, threads, 400, lambda now, number: 30)
    (price,) = watch.prices()
    assert (price.share, price.ordered) == (0.0, 0.5)
    switches = len(threads)
    assert switches <= 2 * 12 + 1  # it ends: the rest of the run is the script's own
    assert threads[-1] == 1


@pytest.mark.parametrize(
    ("own", "workers", "variables", "priced"),
    [
        pytest.param(1, 0, {}, True, id="fewer"),
        pytest.param(1, 2, {}, False, id="fewer beside workers"),
        pytest.param(1, 0, {"OMP_NUM_THREADS": "1"}, False, id="fewer because somebody said so"),
        pytest.param(16, 2, {"OMP_NUM_THREADS": "16"}, True, id="more than cores"),
        pytest.param(16, 0, {"WORLD_SIZE": "2"}, False, id="ranks"),
        pytest.param(4, 0, {}, False, id="as many as cores"),
    ],
)
def test_threads_are_only_tried_where_that_harms_nobody(threads, monkeypatch, own, workers, variables, priced):
    threads.append(own)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    watch = SettingTrialWatch(tuple, lambda: [Loader(workers)])
    run_steps(watch, threads, 60, lambda now, number: 30)
    assert bool(watch.prices()) is priced
    assert threads[-1] == own


@pytest.mark.parametrize(
    ("own", "ranks", "tried"),
    [
        pytest.param(4, 2, [2], id="each its share"),
        pytest.param(2, 8, [1], id="at least one"),
        pytest.param(2, 2, [], id="as many as cores"),
        pytest.param(1, 8, [], id="no fewer than one"),
    ],
)
def test_ranks_that_share_the_cores_try_fewer_threads_at_the_same_steps(threads, monkeypatch, own, ranks, tried):
    threads.append(own)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    monkeypatch.setenv("WORLD_SIZE", str(ranks))
    watch = SettingTrialWatch(tuple, tuple)
    run_steps(watch, threads, 60, lambda now, number: 10 * now)
    assert [price.tried for price in watch.prices()] == tried
    assert all(price.share == pytest.approx(1 - price.tried / own) for price in watch.prices())
    assert threads[-1] == own


def test_the_line_that_sets_the_number_is_named(threads, monkeypatch):
    seams = Seams()
    monkeypatch.setattr(torch, "set_num_threads", lambda number: threads.append(number))
    watch = SettingTrialWatch(tuple, tuple)
    watch.install(seams)
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    torch.set_num_threads(2)
    run_steps(watch, threads, 60, lambda now, number: 30)
    seams.undo()
    (price,) = watch.prices()
    assert (price.place.file, price.own) == (__file__, 2)


@given(st.lists(st.sampled_from([0.0, 1e-40, -3e-42, 1.2e-38, 1.0, float("inf")]), min_size=1, max_size=50))
def test_numbers_below_full_precision_are_counted(values):
    weight = torch.nn.Parameter(torch.tensor(values))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    (found,) = count_denormals([optimizer])
    small = [value for value in torch.tensor(values).tolist() if 0 < abs(value) < torch.finfo(torch.float32).tiny]
    assert (found.where, found.elements) == ("weights", len(values))
    assert found.share == pytest.approx(len(small) / len(values))


def test_gradients_and_optimizer_state_are_looked_at_too():
    weight = torch.nn.Parameter(torch.ones(10))
    optimizer = torch.optim.Adam([weight], lr=0.1)
    weight.grad = torch.full((10,), 1e-18)  # squared and times 0.001: 1e-39
    optimizer.step()
    found = {each.where: each.share for each in count_denormals([optimizer])}
    assert (found["weights"], found["gradients"]) == (0.0, 0.0)
    assert found["optimizer state"] == pytest.approx(10 / 21)  # of step, first and second moments
