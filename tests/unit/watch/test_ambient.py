"""Settings that samples may come out otherwise under are seen while they are others, and not any more afterwards."""

import contextlib
import decimal
import os
import time

import numpy as np
import pytest
import torch

from flatout.watch.ambient import Ambient


@contextlib.contextmanager
def put_back(setter, value, before):
    setter(value)
    yield
    setter(before)


@contextlib.contextmanager
def time_zone(name):
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    yield
    os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
    time.tzset()


class FunctionMode(torch.overrides.TorchFunctionMode):
    pass


SETTINGS = {
    "dtype": lambda: put_back(torch.set_default_dtype, torch.float64, torch.float32),
    "deterministic": lambda: put_back(torch.use_deterministic_algorithms, True, False),
    "autocast": lambda: torch.autocast("cpu"),
    "function mode": FunctionMode,
    "device": lambda: torch.device("meta"),
    "NumPy's errors": lambda: np.errstate(divide="raise"),
    "decimal": lambda: decimal.localcontext(prec=5),
    "time zone": lambda: time_zone("Pacific/Auckland"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_seen_while_it_is_another(name):
    settings = Ambient(folder=False)
    assert settings.as_before()
    for _ in range(2):
        with SETTINGS[name]():
            assert not settings.as_before()
        assert settings.as_before()


def test_the_type_that_autocast_takes_counts_while_it_is_on():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        settings = Ambient(folder=False)
        with torch.autocast("cpu", dtype=torch.float16):
            assert not settings.as_before()
        assert settings.as_before()


def test_what_is_set_anew_to_what_it_was_is_no_change():
    settings = Ambient(folder=False)
    before = np.seterr(over="warn")
    assert settings.as_before() == (before["over"] == "warn")
    np.seterr(**before)
    assert settings.as_before()


def test_the_folder_counts_where_files_are_read(workdir, monkeypatch):
    with_files, without = Ambient(folder=True), Ambient(folder=False)
    (workdir / "elsewhere").mkdir()
    monkeypatch.chdir(workdir / "elsewhere")
    assert not with_files.as_before()
    assert without.as_before()
