"""A key that only this user has: the same each time, and a new one where it is not safe."""

import os

import pytest

from flatout.engine.process.own_key import own_key


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "flatout" / "key"


def test_it_is_made_once_for_its_owner_alone(place):
    key = own_key()
    assert len(key) == 32
    assert own_key() == key == place.read_bytes()
    assert place.stat().st_mode & 0o777 == 0o600
    assert place.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("change", ["readable", "short", "of another user"])
def test_a_key_that_others_may_know_is_not_used(place, change, monkeypatch):
    key = own_key()
    if change == "readable":
        place.chmod(0o644)
    elif change == "short":
        place.write_bytes(key[:31])
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert own_key() != key


def test_where_it_cannot_be_kept_each_one_is_new(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert own_key() != own_key()


def test_without_a_state_home_it_lies_in_the_users_own(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    key = own_key()
    assert (tmp_path / ".local" / "state" / "flatout" / "key").read_bytes() == key
