"""Programs put together at random come out as Python has them, compiled or not."""

import warnings

import pytest
from tests.unit.numeric.random_programs import Program, arguments
from tests.unit.numeric.served_code import at_once, loaded, outcome, same

pytest.importorskip("numba")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.few(6)
def test_a_program_comes_out_as_plain(seed, tmp_path, monkeypatch):
    told = at_once(monkeypatch)
    text = f"import math\nimport flatout\n@flatout.compiled\n{Program(seed).text()}"
    function = loaded(tmp_path, text).f
    plain = getattr(function, "__wrapped__", function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy tells of overflows, whoever does the work
        for _ in range(3):
            for given in arguments(seed):
                mine, theirs = outcome(function, given), outcome(plain, given)
                assert same(mine, theirs), f"{mine} is not {theirs}, for {given}\n{text}"
    assert "gives another result than Python" not in told.left
