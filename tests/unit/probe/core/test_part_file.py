"""The file that a process writes while it is observed: appended to, cut off at most at its end."""

import json
import os

import pytest

from flatout.probe.core import part_file
from flatout.probe.core.part_file import PartFile
from flatout.schema.codec import SCHEMA
from flatout.schema.phase import Phase
from flatout.schema.run import Outside, Step


@pytest.fixture
def part(tmp_path):
    made = PartFile(tmp_path / "part-1.jsonl")
    yield made
    made.close()


def records(part):
    return [json.loads(line) for line in part.path.read_text().splitlines()]


def step(number):
    return Step(start_ns=number, wall_ns=1, phases_ns=(1,) * 8)


def test_it_begins_with_the_schema_and_only_its_user_reads_it(part):
    assert records(part) == [{"kind": "flatout", "schema": SCHEMA}]
    assert part.path.stat().st_mode & 0o777 == 0o600


def test_values_are_written_at_once_and_steps_when_it_is_flushed(part):
    part.put("batch", {"size": 3})
    part.put_many("names", ["a", "b"])
    part.step(step(1))
    part.outside(Outside(phase=Phase.VALIDATION, start_ns=5, wall_ns=2))
    assert [one["kind"] for one in records(part)] == ["flatout", "batch", "names"]
    part.flush()
    part.flush()  # nothing more
    found = records(part)
    assert [one["kind"] for one in found[3:]] == ["steps", "outside"]
    assert found[1]["value"] == {"size": 3}
    assert found[2]["values"] == ["a", "b"]
    assert found[4]["values"][0]["phase"] == "validation"


def test_what_is_left_is_written_at_the_end_and_nothing_after_it(part):
    part.begin()
    part.step(step(1))
    part.close()
    assert not part._thread.is_alive()
    part.put("late", 1)
    assert [one["kind"] for one in records(part)] == ["flatout", "steps"]
    part.close()


def test_the_thread_writes_now_and_then_and_does_what_it_is_told_first(tmp_path, monkeypatch):
    monkeypatch.setattr(part_file, "_FLUSH_S", 0.001)
    part = PartFile(tmp_path / "part-1.jsonl")
    seen = []

    def meanwhile():
        seen.append(True)
        part.step(step(len(seen)))

    part.begin(meanwhile)
    while len(records(part)) < 3:
        pass
    part.close()
    assert seen


def test_after_a_line_that_was_cut_off_there_is_no_other(part, monkeypatch):
    def full(descriptor, data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        part.put("lost", 1)
    part.put("after", 2)
    assert part.error == "No space left on device (part-1.jsonl)"
    assert len(records(part)) == 1


def test_a_line_that_is_written_in_pieces_is_whole(part, monkeypatch):
    plain = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: plain(descriptor, data[:5]))
    part.put("long", "x" * 50)
    assert records(part)[1]["value"] == "x" * 50


def test_a_forked_process_writes_nothing(part, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -5)
        part.put("of the child", 1)
    part.put("of the parent", 2)
    assert [one["kind"] for one in records(part)] == ["flatout", "of the parent"]


def test_a_file_that_cannot_be_made_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        PartFile(tmp_path / "none" / "part-1.jsonl")
