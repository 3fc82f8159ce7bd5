"""What a training under a recipe is given, and what its processes said when it is over."""

import json
import os

import pytest

from flatout.engine import train
from flatout.engine.train import _environment, _exit_code, _trained
from flatout.schema.order import ORDER_VARIABLE
from flatout.schema.trial import Selection

TF32, WORKERS = Selection("tf32"), Selection("loader-workers", {"workers": 2})


@pytest.mark.parametrize(("code", "shown"), [(0, 0), (3, 3), (-9, 137), (-2, 130)])
def test_a_signal_is_told_as_a_shell_does(code, shown):
    assert _exit_code(code) == shown


def test_the_environment_is_ours_with_the_way_in_and_what_fixes_need(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("MINE", "kept")
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    found = _environment(tmp_path / "order.json", [Selection("allocator"), Selection("no-such-fix")])
    assert found[ORDER_VARIABLE] == str(tmp_path / "order.json")
    way_in, mine = found["PYTHONPATH"].split(os.pathsep)
    assert os.path.exists(os.path.join(way_in, "sitecustomize.py"))
    assert mine == "/mine"
    assert found["MINE"] == "kept"


def test_what_the_user_has_set_stays(tmp_path, monkeypatch):
    needed = dict(train.find_fix("allocator").environment)
    name = next(iter(needed))
    monkeypatch.delenv(name, raising=False)
    assert _environment(tmp_path, [Selection("allocator")])[name] == needed[name]
    monkeypatch.setenv(name, "mine")
    assert _environment(tmp_path, [Selection("allocator")])[name] == "mine"


def said(pid, *, hits=(), failure="", rank=0, steps=0, loaders=(), samples=None, notes=(), last_s=0.0, **more):
    site = {"hits": dict(hits), "loaders": list(loaders), "stood_back": "", "failure": failure}
    other = {"hits": {}, "loaders": [], "stood_back": "", "failure": failure}
    return {
        "pid": pid,
        "rank": rank,
        "steps": steps,
        "last_step_unix_s": last_s,
        "sites": [site, other],
        "samples": samples or {},
        "notes": list(notes),
        **more,
    }


def told(folder, *words, attached=True):
    (folder / "parts").mkdir(exist_ok=True)
    if attached:
        (folder / "parts" / "python-1").touch()
    lines = [word if isinstance(word, str) else json.dumps(word) for word in words]
    (folder / "acts.jsonl").write_text("\n".join(lines))
    return _trained(0, [WORKERS, TF32], folder)


def trained(folder, *words, attached=True):
    return told(folder, *words, attached=attached)[0]


def test_of_each_process_its_last_word_counts(tmp_path):
    found = trained(
        tmp_path,
        said(1, hits={"batches": 2}),
        said(1, hits={"batches": 5}, steps=9),
        said(2, hits={"batches": 3}, rank=1, steps=8),
        '{"pid": 3, "cut off',
    )
    assert found.acts[0].hits == {"batches": 8}
    assert found.acts[1].hits == {}
    assert found.ranks == {0: 9, 1: 8}


def test_failures_are_counted_by_reason(tmp_path):
    found = trained(tmp_path, said(1, failure="no device"), said(2, failure="no device"), said(3, failure="late"))
    assert found.acts[0].failures == {"no device": 2, "late": 1}


def test_what_a_process_told_of_itself_is_taken_from_one_that_trained(tmp_path):
    found = trained(
        tmp_path,
        said(1, steps=5, python="3.11", torch="2.13", device="cpu", world_size=2, samples={"Rows": [10]}),
        said(2, samples={"Rows": [20]}, python="3.9"),
    ).found
    assert (found.python, found.torch, found.devices, found.world_size) == ("3.11", "2.13", ("cpu",), 2)
    assert found.samples == {"Rows": [10, 20]}


def test_loaders_of_one_line_are_told_together(tmp_path):
    told = {"dataset": "Rows", "place": "train.py:3"}
    found = trained(tmp_path, said(1, loaders=[told]), said(2, loaders=[told, {**told, "place": "train.py:4"}]))
    assert list(found.acts[0].loaders) == [("Rows", "train.py:3"), ("Rows", "train.py:4")]


def test_processes_one_after_the_other_are_one_training_and_ranks_train_side_by_side(tmp_path):
    walked = {"dataset": "Rows", "place": "train.py:3", "passes": 3, "batches": 20}
    words = [said(pid, steps=90, rank=pid % 2, loaders=[walked], last_s=60.0 + pid) for pid in (2, 3, 4)]
    found, last_step_unix_s = told(tmp_path, *words)
    assert found.ranks == {0: 180, 1: 90}
    (account,) = found.acts[0].loaders.values()
    assert (account.passes, account.batches) == (6, 60)
    assert last_step_unix_s == 64.0


def test_notes_are_said_once(tmp_path):
    assert trained(tmp_path, said(1, notes=["a", "b"]), said(2, notes=["b", "c"])).notes == ["a", "b", "c"]


def test_where_no_process_was_reached_that_is_a_note(tmp_path):
    (note,) = trained(tmp_path, attached=False).notes
    assert "could not attach to any Python process" in note


def test_why_a_process_could_not_be_attached_to_is_a_note(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "failed-7.txt").write_text("Traceback\n  line\nImportError: no flatout\n")
    (tmp_path / "parts" / "failed-8.txt").write_text("")
    assert trained(tmp_path).notes == ["could not attach: ImportError: no flatout"]


def test_without_words_nothing_was_done(tmp_path):
    (tmp_path / "parts").mkdir()
    found, _ = _trained(3, [TF32], tmp_path)
    assert (found.exit_code, found.ranks, found.acts[0].hits) == (3, {}, {})
