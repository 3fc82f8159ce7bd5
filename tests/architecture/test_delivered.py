"""What `benchmarks/delivered.py` makes of trainings that were timed."""

from pathlib import Path

import pytest

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(Path(__file__).resolve().parents[2] / "benchmarks")  # as for a script that lies there
    import delivered


def result(**seconds: list[float]) -> delivered.Result:
    return delivered.Result(digest="", kept=(), expected=None, tune_s=0.0, seconds=seconds)


@pytest.mark.parametrize(
    ("run_s", "share"),
    [([20.0], 0.5), ([10.0], 1.0), ([5.0], 1.0), ([40.0], 0.0), ([80.0], -0.5), ([19.0, 20.0, 60.0], 0.5)],
)
def test_the_share_is_one_of_logarithms_and_at_most_one(run_s: list[float], share: float) -> None:
    assert result(plain=[40.0], run=run_s, twin=[10.0]).delivered == pytest.approx(share)


def test_what_keeps_nothing_delivers_nothing() -> None:
    assert result(plain=[40.0], twin=[10.0]).delivered == 0.0


@pytest.mark.parametrize("twin_s", [[], [38.0]])
def test_a_twin_that_failed_or_gains_little_counts_for_nothing(twin_s: list[float]) -> None:
    assert result(plain=[40.0], run=[20.0], twin=twin_s).delivered is None


def test_the_figures_count_scripts() -> None:
    found = delivered.figures([1.0, 0.8, 0.5, 0.0])
    assert list(found.values()) == [pytest.approx(0.575), 0.5, 0.25]
