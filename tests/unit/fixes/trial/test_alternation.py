"""Blocks that alternate: what is switched when, what is written, and when it ends, with truth known by construction."""

import random
import threading
import time

import pytest

from flatout.fixes.trial.alternation import Alternation
from flatout.fixes.trial.turns import Turns, WholeProcess, owner
from flatout.schema.order import TimingOrder
from flatout.schema.run import Step
from flatout.schema.trial import Pair, Selection


class Lever:
    """A fix that is on or off, as `Site` is; `act` is what it does when a step passes."""

    def __init__(self, name="lever", hits=True, failure=""):
        self.selection = Selection(name)
        self.enabled = False
        self.acts = hits
        self.hits = {}
        self.failure, self.stood_back = failure, ""
        self.loaders = list
        self.switched = 0

    def enable(self):
        if self.failure:
            return
        self.enabled = True
        self.switched += 1
        if self.acts:
            self.hits["x"] = self.hits.get("x", 0) + 1

    def disable(self):
        self.enabled = False


def a_step(ms):
    return Step(0, round(ms * 1e6), (0,) * 8, 1, 0, False, False, (0, 0, 0), ())


def run(alternation, duration_ms, limit=100_000):
    for number in range(limit):
        if alternation.step(a_step(duration_ms(number))):
            return number
    raise AssertionError("it never ends")


def timed(arms, truth, *, noise=0.01, base=(), **options):
    """Run an alternation in which `truth[name]` is the factor of a step under that fix; return what it wrote."""
    written, rng = [], random.Random(7)
    every = [*base, *(site for arm in arms for site in arm)]
    order = TimingOrder(block_s=0.05, **options)
    alternation = Alternation(order, base, arms, lambda kind, body: written.append((kind, body)))

    def ms(number):
        factor = 1.0
        for site in every:
            factor *= truth.get(site.selection.fix, 1.0) if site.enabled else 1.0
        return 10 * factor * rng.lognormvariate(0, noise) * (1 + 0.0005 * number)  # and a machine that gets slower

    run(alternation, ms)
    return written, every


def decisions(written):
    return [body["decision"] for kind, body in written if kind == "arm"]


def test_a_faster_arm_is_found_and_ends_it():
    first, second, third = Lever("same"), Lever("fast"), Lever("never tried")
    written, _ = timed([[first], [second], [third]], {"fast": 0.8})
    assert decisions(written)[-1] == "faster"
    assert len(decisions(written)) == 2
    assert third.switched == 0


def test_a_slower_arm_and_one_that_changes_nothing_are_told_apart_in_spite_of_drift():
    written, _ = timed([[Lever("slow")], [Lever("same")]], {"slow": 1.2}, noise=0.003)
    assert decisions(written) == ["slower", "not faster"]


def test_nothing_stays_switched_on():
    _, every = timed([[Lever("slow")], [Lever("same")]], {"slow": 1.2})
    assert not any(site.enabled for site in every)


def test_pairs_hold_the_base_first_and_the_arm_second_whichever_was_measured_first():
    written, _ = timed([[Lever("fast")]], {"fast": 0.5}, noise=0.0)
    ratios = [body["baseline_ms"] / body["candidate_ms"] for kind, body in written if kind == "pair"]
    assert all(ratio == pytest.approx(2.0, rel=0.1) for ratio in ratios)


def test_an_arm_that_does_nothing_is_not_applied():
    written, _ = timed([[Lever("idle", hits=False)], [Lever("same")]], {})
    assert decisions(written)[0] == "not applied"
    assert len(decisions(written)) == 2


def test_an_arm_that_fails_says_why():
    written, _ = timed([[Lever("broken", failure="RuntimeError: no")]], {})
    body = next(body for kind, body in written if kind == "arm")
    assert (body["decision"], body["reason"]) == ("not applied", "RuntimeError: no")


def test_leaving_one_out_switches_a_fix_of_the_base_off_and_on_again():
    needed, idle = Lever("needed"), Lever("idle")
    for site in (needed, idle):
        site.enable()
    written, _ = timed([[needed], [idle]], {"needed": 0.8}, base=[needed, idle], noise=0.003, without=True)
    assert decisions(written) == ["slower", "not faster"]
    assert needed.enabled and idle.enabled


def test_the_time_limit_ends_it_undecided():
    written, _ = timed([[Lever("same")], [Lever("other")]], {}, noise=0.3, max_s=1.0)
    assert decisions(written) == ["undecided"]


def test_pairs_of_an_earlier_process_count():
    prior = tuple(Pair(10.0, 8.0 + 0.01 * number) for number in range(7))
    written, _ = timed([[Lever("fast")]], {"fast": 0.8}, prior=(prior,), looks=(8,))
    assert sum(kind == "pair" for kind, _ in written) == 1
    assert decisions(written) == ["faster"]


# -- whole processes ------------------------------------------------------------------------------------------------


def test_a_process_as_one_block_leaves_its_slow_start_out():
    written = []
    whole = WholeProcess(TimingOrder(block_s=1.0), [], lambda kind, body: written.append(body))
    run(whole, lambda number: 200.0 if number < 5 else 10.0)
    whole.finish()
    assert written[0]["ms"] == pytest.approx(10.0)
    assert written[0]["warmup_s"] > 0.9


@pytest.mark.parametrize("seed", [0, 1, 17])
def test_of_every_two_blocks_each_has_one_in_an_order_drawn_by_lot(seed):
    owners = [owner(number, seed) for number in range(64)]
    assert all({first, second} == {0, 1} for first, second in zip(owners[::2], owners[1::2], strict=True))
    assert 4 < sum(owners[::2]) < 28


def test_two_that_take_turns_do_their_blocks_one_after_the_other(tmp_path):
    written = []

    def work(side):
        order = TimingOrder(block_s=0.02, looks=(4,), turns=str(tmp_path), side=side)
        turns = Turns(order, [], lambda kind, body: written.append((kind, body)))
        while not turns.step(a_step(100.0)):
            pass
        turns.finish()

    threads = [threading.Thread(target=work, args=(side,)) for side in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    blocks = [body for kind, body in written if kind == "block"]
    assert [body["number"] for body in blocks] == list(range(8))
    assert [body["side"] for body in blocks] == [owner(number, 0) for number in range(8)]


def test_a_block_is_as_long_as_the_order_says_however_slow_the_warm_up_was(tmp_path):
    written = []
    (tmp_path / "ready-1").touch()
    (tmp_path / "turn").write_text("0")
    order = TimingOrder(block_s=1.0, looks=(8,), turns=str(tmp_path), side=owner(0, 0))
    turns = Turns(order, [], lambda kind, body: written.append(body))
    turns._pass_on = lambda number: (tmp_path / "turn").write_text(str(next(n for n in range(number, 17) if mine(n))))

    def mine(number):
        return number >= 16 or owner(number, 0) == order.side

    number = 0
    while not turns.step(a_step(250.0 if number < 6 else 10.0)):
        number += 1
    sizes = [body["steps"] for body in written]
    assert len(sizes) == 8
    assert sizes[0] < 10 and min(sizes[1:]) > 40


def test_a_block_of_whole_epochs_holds_what_lies_between_the_steps():
    written, now = [], 0
    whole = WholeProcess(TimingOrder(block_s=1.0, epoch_steps=10), [], lambda kind, body: written.append(body))
    for number in range(1000):
        step = Step(now, 100_000_000, (0,) * 8, 1, 0, False, False, (0, 0, 0), ())
        now += 100_000_000 + (500_000_000 if number % 10 == 9 else 0)  # half a second between two epochs
        if whole.step(step):
            break
    whole.finish()
    assert written[0]["steps"] % 10 == 0
    assert written[0]["ms"] == pytest.approx(150.0)


def test_ceilings_are_all_measured_each_in_its_share_of_the_time():
    arms = [[Lever("held")], [Lever("nothing", hits=False)], [Lever("same")]]
    written, _ = timed(arms, {"held": 0.2}, looks=(8, 16), max_s=30.0, ceilings=True, alpha=0.02)
    assert [body["arm"] for kind, body in written if kind == "arm"] == [0, 1, 2]
    assert decisions(written)[:2] == ["faster", "not applied"]
    assert not any(lever.enabled for arm in arms for lever in arm)


def test_a_ceiling_whose_time_is_over_leaves_the_others_theirs():
    arms = [[Lever("same")], [Lever("held")]]
    written, _ = timed(arms, {"held": 0.2}, looks=(64,), max_s=8.0, ceilings=True, alpha=0.02)
    pairs = [body["arm"] for kind, body in written if kind == "pair"]
    assert 4 <= pairs.count(0) <= 64
    assert pairs.count(1) >= 4


@pytest.mark.parametrize(("ceilings", "decision"), [(True, "faster"), (False, "not applied")])
def test_a_ceiling_waits_until_workers_have_followed_the_switch(ceilings, decision):
    class Slow(Lever):
        """Acts in a worker, which gives five batches first that it had begun before."""

        @property
        def hits(self):
            return {"in workers": 1} if seen() > 5 else {}

        @hits.setter
        def hits(self, value):
            assert value == {}

    lever = Slow(hits=False)
    written, order = [], TimingOrder(block_s=0.05, looks=(8, 16), ceilings=ceilings, alpha=0.02, skip=6)
    alternation = Alternation(order, [], [[lever]], lambda kind, body: written.append((kind, body)))
    steps_on = []

    def seen():
        return len(steps_on)

    def ms(number):
        steps_on.extend([number] * lever.enabled)
        return 2.0 if lever.enabled else 10.0

    run(alternation, ms)
    assert decisions(written) == [decision]


def test_what_an_arm_left_ready_is_used_up_before_the_script_as_it_is_is_timed():
    lever, since_off = Lever(), [0]

    def ms(number):
        since_off[0] = 0 if lever.enabled else since_off[0] + 1
        return 2.0 if lever.enabled or (number > 60 and since_off[0] <= 30) else 10.0

    def baselines(drain):
        written = []
        order = TimingOrder(block_s=0.05, looks=(8, 16), ceilings=True, alpha=0.02, skip=6, drain=drain)
        since_off[0] = 0
        run(Alternation(order, [], [[lever]], lambda kind, body: written.append((kind, body))), ms)
        return [body["baseline_ms"] for kind, body in written if kind == "pair"]

    assert min(baselines(drain=0)) < 5
    assert min(baselines(drain=25)) == pytest.approx(10.0)


def test_the_one_that_stands_still_sleeps_until_the_other_rings(tmp_path, monkeypatch):
    monkeypatch.setattr("flatout.fixes.trial.turns._LOOK_AGAIN_S", 60.0)
    waiting, other = (
        Turns(TimingOrder(turns=str(tmp_path), side=side, looks=(1,)), [], lambda kind, body: None) for side in (0, 1)
    )
    waiting._bell.hang()
    looks = []
    monkeypatch.setattr(waiting, "_turn", lambda: looks.append(1) or Turns._turn(waiting))
    standing = threading.Thread(target=waiting._wait, args=(-1,), daemon=True)
    standing.start()
    time.sleep(0.5)
    assert standing.is_alive()
    other.finish()
    standing.join(10)
    assert not standing.is_alive()
    assert len(looks) == 2  # when it began to wait, and when it was rung for
