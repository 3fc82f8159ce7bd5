"""Two command lines at once: both end, or the one that fails takes the other with it."""

import json
import sys
import time

import pytest

from flatout.engine.process import side_by_side


def run(tmp_path, monkeypatch, *scripts, environment=None):
    spec = tmp_path / "spec.json"
    arms = [
        {"command": ["sh", "-c", script], "working": str(tmp_path), "environment": environment or {}}
        for script in scripts
    ]
    spec.write_text(json.dumps(arms))
    monkeypatch.setattr(sys, "argv", ["side_by_side", str(spec)])
    code = side_by_side.main()
    assert not spec.exists()  # command lines may hold secrets
    return code


def test_both_run_in_their_folder_with_their_environment(tmp_path, monkeypatch):
    assert run(tmp_path, monkeypatch, 'echo "$ARM" > a', 'echo "$ARM" > b', environment={"ARM": "x"}) == 0
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text() == "x\n"


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -9 $$", 137)])
def test_one_that_fails_ends_the_other(tmp_path, monkeypatch, script, code):
    began = time.monotonic()
    assert run(tmp_path, monkeypatch, script, "exec sleep 60") == code
    assert time.monotonic() - began < 10


def test_one_that_fails_last_is_told_too(tmp_path, monkeypatch):
    assert run(tmp_path, monkeypatch, "exit 0", "sleep 0.1; exit 5") == 5


def test_one_that_does_not_listen_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(side_by_side, "_GRACE_S", 0.05)
    assert run(
        tmp_path, monkeypatch, "while [ ! -e ready ]; do :; done; exit 3", "trap '' TERM; touch ready; read x <&1"
    ) in (
        3,
        137,
    )
