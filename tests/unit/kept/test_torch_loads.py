"""Settings under which a file of torch's gives the same each time."""

import pytest
import torch
from torch import serialization
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from flatout.kept.torch_loads import load_settings


class Own:
    """Something that files may name."""


def test_a_usual_load_has_settings_and_they_are_the_same_again():
    found = load_settings({})
    assert found is not None and {found} == {load_settings({"weights_only": True}), load_settings({})}


@pytest.mark.parametrize("weights_only", [False, 1])
def test_a_pickle_may_run_code(weights_only):
    assert load_settings({"weights_only": weights_only}) is None


def test_an_environment_that_lets_pickles_run(monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    assert load_settings({}) is None
    assert load_settings({"weights_only": True}) is not None


def test_a_default_that_is_not_known_is_none(monkeypatch):
    monkeypatch.delattr(serialization, "_default_to_weights_only")
    assert load_settings({}) is None and load_settings({"weights_only": True}) is not None


class Watching(TorchFunctionMode):
    """Sees each operation."""


@pytest.mark.parametrize(
    "under",
    [
        serialization.skip_data,
        FakeTensorMode,
        Watching,
        lambda: torch.device("meta"),
        lambda: serialization.safe_globals([Own]),
        lambda: serialization.safe_globals([(Own, "torch.Own")]),
        torch.inference_mode,
    ],
)
def test_an_unusual_moment_has_none(under):
    with under():
        assert load_settings({}) is None
    assert load_settings({}) is not None


def test_names_that_are_safe_and_the_order_of_bytes_are_part_of_it():
    before = load_settings({})
    safe = serialization.get_safe_globals()
    serialization.clear_safe_globals()
    try:
        assert load_settings({}) != before or not safe
    finally:
        serialization.add_safe_globals(safe)
    serialization.set_default_load_endianness(serialization.LoadEndianness.BIG)
    try:
        assert load_settings({}) != before
    finally:
        serialization.set_default_load_endianness(None)
    assert load_settings({}) == before


def test_loaders_of_the_scripts_own_may_do_anything(monkeypatch):
    own = (1, lambda storage: None, lambda storage, place: None)
    monkeypatch.setattr(serialization, "_package_registry", [own, *serialization._package_registry])
    assert load_settings({}) is None
