"""Recordings on disk: found nearest below a folder, put together where they lie in parts, read as they are."""

import os
from dataclasses import replace

import pytest
from tests.unit.report.specimens import run

from flatout.cli.recordings import find_recording, find_recordings, read_report, recorded
from flatout.errors import BadRecording, UsageError
from flatout.schema.codec import RUN_FILE, write_run
from flatout.schema.run import Utilization


def write(folder, second=0, **changes):
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / RUN_FILE
    write_run(replace(run(input=60, forward=40), **changes), file)
    os.utime(file, (second, second))
    return file


def test_of_several_levels_the_nearest_counts_and_there_the_newest(tmp_path):
    old, new = write(tmp_path / "a", 2), write(tmp_path / "b", 3)
    older = write(tmp_path / "c", 1)
    write(tmp_path / "a" / "deeper", 9)
    assert find_recordings(tmp_path) == [older, old, new]
    assert find_recording(tmp_path) == new
    assert find_recording(tmp_path / "a") == old


def test_a_file_is_itself_whatever_it_is_called(tmp_path):
    (tmp_path / "odd.json").write_text("{}")
    assert find_recordings(tmp_path / "odd.json") == [tmp_path / "odd.json"]


def test_deeper_than_four_levels_nothing_is_looked_for(tmp_path):
    write(tmp_path / "1" / "2" / "3" / "4" / "5")
    with pytest.raises(UsageError, match="4 levels below it"):
        find_recording(tmp_path)
    assert find_recording(tmp_path / "1").parent.name == "5"


def parts_of_a_killed_run(folder):
    (folder / "parts").mkdir(parents=True)
    (folder / "order-timed.json").write_text("{}")
    return folder


@pytest.mark.parametrize("taken", ["", "no order", "a link", "a recording"])
def test_what_a_killed_diagnosis_left_is_put_together_and_nothing_else(tmp_path, monkeypatch, taken):
    seen = []
    monkeypatch.setattr("flatout.engine.diagnose.recover", seen.append)
    folder = parts_of_a_killed_run(tmp_path / "killed")
    if taken == "no order":
        (folder / "order-timed.json").unlink()
    elif taken == "a link":
        (folder / "parts").rename(tmp_path / "elsewhere")
        (folder / "parts").symlink_to(tmp_path / "elsewhere")
    elif taken == "a recording":
        write(folder)
    write(tmp_path / "other")
    find_recording(tmp_path)
    assert seen == ([folder] if not taken else [])


def test_parts_that_cannot_be_put_together_are_told(tmp_path, monkeypatch):
    def fail(folder):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("flatout.engine.diagnose.recover", fail)
    folder = parts_of_a_killed_run(tmp_path / "killed")
    with pytest.raises(BadRecording, match=r"cannot be read as a whole \(Permission denied\)"):
        find_recording(folder)


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), KeyError("phase"), OverflowError("too large")])
def test_numbers_that_no_training_has_are_the_recordings_fault(tmp_path, error):
    with pytest.raises(BadRecording, match="holds impossible numbers"), recorded(tmp_path / RUN_FILE):
        raise error


def test_an_error_of_ours_and_a_mistake_go_through(tmp_path):
    with pytest.raises(UsageError, match="no such"), recorded(tmp_path):
        raise UsageError("no such folder")
    with pytest.raises(AssertionError), recorded(tmp_path):
        raise AssertionError


def test_a_loss_may_be_anything_and_a_time_may_not(tmp_path):
    file = write(tmp_path / "a", losses=(float("nan"), float("inf")))
    assert read_report(file).breakdown.measured > 0
    file = write(tmp_path / "b", utilization=(Utilization(at_s=float("nan")),))
    with pytest.raises(BadRecording, match=r"Utilization\.at_s is nan"):
        read_report(file)
    file = write(tmp_path / "c", probe_us=float("inf"))
    with pytest.raises(BadRecording, match=r"Run\.probe_us is inf"):
        read_report(file)


def test_a_recording_of_the_far_future_is_refused(tmp_path):
    recording = run(input=60, forward=40)
    file = write(tmp_path, header=replace(recording.header, started_unix_s=1e12))
    with pytest.raises(BadRecording, match=r"started_unix_s is 1e\+12"):
        read_report(file)


def test_files_of_a_tune_that_are_links_are_not_read(tmp_path):
    file = write(tmp_path / "a")
    (tmp_path / "elsewhere").write_text("{}\n")
    (tmp_path / "a" / "trials.jsonl").symlink_to(tmp_path / "elsewhere")
    found = read_report(file)
    assert found.trials == ()
    assert any("was not written by flatout" in note for note in found.run.notes)
