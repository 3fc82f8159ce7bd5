"""The account of a rank and its end, of flatout.ranks.account and flatout.ranks.ending."""

import json
import os
import sys

import pytest

from flatout.ranks.account import RankAccount
from flatout.ranks.ending import RankEnd


class Ended(BaseException):
    pass


class Store(dict):
    def set(self, key, value):
        self[key] = value

    def check(self, keys):
        return all(key in self for key in keys)


@pytest.fixture
def exits(monkeypatch):
    def leave(code):
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", leave)


def written(tmp_path):
    return json.loads((tmp_path / "rank-1.json").read_text())


def test_loaders_are_told_apart_by_data_set_and_line(tmp_path):
    account = RankAccount(str(tmp_path), 1, 2)
    account.write()
    assert "inputs" not in written(tmp_path)
    for place in ("train.py:3", "train.py:9", "train.py:3"):
        account.input("Photos", place).batches += 2
    account.write()
    assert [(one["place"], one["batches"]) for one in written(tmp_path)["inputs"]] == [
        ("train.py:3", 4),
        ("train.py:9", 2),
    ]
    for number in range(100):
        account.input("Photos", f"train.py:{number}").batches += 1
    account.write()
    assert len(written(tmp_path)["inputs"]) == 51
    assert written(tmp_path)["inputs"][-1]["name"] == "others"
    assert written(tmp_path)["inputs"][0]["batches"] == 5


def test_calls_are_counted_by_what_became_of_them(tmp_path):
    account = RankAccount(str(tmp_path), 1, 2)
    for rows in ((3, 2), (2, 2)):
        account.cut("Net", rows)
    account.few("Net")
    account.whole("Head", "why")
    account.count("alone")
    account.count("alone")
    account.took("proof", 0.5)
    account.took("proof", 0.25)
    account.write()
    assert written(tmp_path) == {
        "rank": 1,
        "size": 2,
        "modules": {
            "Net": {"cut": 2, "rows": [3, 2], "few": 1, "whole": {}},
            "Head": {"cut": 0, "rows": [], "few": 0, "whole": {"why": 1}},
        },
        "seconds": {"proof": 0.75},
        "counts": {"alone": 2},
    }


def test_an_account_whose_reader_has_gone_is_no_error(tmp_path):
    RankAccount(str(tmp_path / "gone"), 1, 2).write()


def test_ranks_that_part_say_what_each_is_at(tmp_path, exits):
    end = RankEnd(RankAccount(str(tmp_path), 1, 3), Store(), 1, 3)
    with pytest.raises(Ended):
        end.parted(["call 1", "call 2", "call 1"])
    assert written(tmp_path)["stopped"] == "ranks went different ways: rank 0, 2 is at call 1; rank 1 is at call 2"


def test_ranks_that_make_one_call_with_other_data_say_so(tmp_path, exits):
    end = RankEnd(RankAccount(str(tmp_path), 1, 2), Store(), 1, 2)
    with pytest.raises(Ended):
        end.parted(["call 1", "call 1"])
    assert "call 1, is made with other data" in written(tmp_path)["stopped"]


def test_a_rank_whose_script_has_failed_is_told_from_one_that_has_ended(tmp_path, monkeypatch):
    store = Store()
    monkeypatch.setattr(sys, "last_value", ValueError(), raising=False)
    RankEnd(RankAccount(str(tmp_path), 1, 2), store, 1, 2).ended()
    assert list(store) == ["failed/1"]


def test_a_rank_whose_peer_has_ended_says_so(tmp_path, exits):
    store = Store()
    RankEnd(RankAccount(str(tmp_path), 0, 2), store, 0, 2).ended()
    end = RankEnd(RankAccount(str(tmp_path), 1, 2), store, 1, 2)
    with pytest.raises(Ended):
        end.lost(RuntimeError("closed"))
    assert "the script has ended in rank 0" in written(tmp_path)["stopped"]


def test_a_rank_whose_peer_was_stopped_ends_without_a_word_of_its_own(tmp_path, exits):
    store = Store({"stopped/0": "why"})
    with pytest.raises(Ended):
        RankEnd(RankAccount(str(tmp_path), 1, 2), store, 1, 2).lost(RuntimeError("closed"))
    assert "stopped" not in written(tmp_path)
