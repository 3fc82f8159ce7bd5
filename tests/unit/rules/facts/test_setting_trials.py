"""Settings whose cost was measured, and how certain that is; and the record of what was measured.

Modules: flatout.schema.measured.
"""

import pytest

from flatout.rules import example
from flatout.rules.facts.setting_trials import computing, is_sure, measured, priced
from flatout.schema.run import Causes, SettingTrial


def run(*trials):
    return example(causes=Causes(prices=trials)).run


def trial(steps=8, ordered=1.0, switch="threads"):
    return SettingTrial(switch=switch, steps=steps, ordered=ordered, share=0.2)


@pytest.mark.parametrize(
    ("steps", "ordered", "is_measured", "is_priced"),
    [(8, 0.9, True, True), (8, 0.89, True, False), (7, 1.0, False, False)],
)
def test_eight_steps_measure_and_nine_pairs_of_ten_give_a_price(steps, ordered, is_measured, is_priced):
    found = run(trial(steps, ordered))
    assert (measured(found, "threads") is not None) is is_measured
    assert (priced(found, "threads") is not None) is is_priced


def test_the_switch_that_is_asked_for_is_meant():
    found = run(trial(switch="denormals"), trial(steps=3), trial(ordered=0.95))
    assert measured(found, "threads").ordered == 0.95
    assert measured(found, "gradients") is None
    assert measured(example().run, "threads") is None


@pytest.mark.parametrize(
    ("steps", "ordered", "sure"), [(8, 1.0, False), (12, 1.0, True), (12, 0.95, False), (50, 0.8, True)]
)
def test_more_steps_need_fewer_pairs_that_agree(steps, ordered, sure):
    assert is_sure(trial(steps, ordered)) is sure


def test_prices_are_shares_of_forward_backward_and_optimizer():
    truth = example(step_ms=100, forward=30, backward=20, optimizer=10, input=40)
    assert computing(truth.breakdown) == pytest.approx(0.6)
