"""Recordings handed to TensorBoard and MLflow: what their own readers find is what was recorded."""

import importlib.util
import math
from dataclasses import replace

import pytest
from tests.unit.report.specimens import HOSTILE, empty, hostile, hostile_tune, ordinary, tuned
from tests.unit.report.test_html import EVERY, INVISIBLE

from flatout.errors import UsageError
from flatout.report.exports.mlflow import EXPERIMENT, write_mlflow
from flatout.report.exports.series import MAX_POINTS, all_series, facts, run_name, texts
from flatout.report.exports.tensorboard import write_tensorboard
from flatout.schema.run import Utilization

USED = (Utilization(at_s=0.5, main_cpu=1.5, memory_bytes=2**30), Utilization(at_s=4.0, main_cpu=0.5, gpu_busy=0.25))
STARTED_S = 1_700_000_000.0


def watched(report=None, **changes):
    """Return a report whose recording has losses, utilization and a moment at which it began."""
    shown = report or ordinary()
    header = replace(shown.run.header, started_unix_s=STARTED_S)
    return replace(shown, run=replace(shown.run, header=header, utilization=USED, losses=(2.0, 1.0, 0.5), **changes))


def named(report):
    return {series.name: series.points for series in all_series(report)}


# --------------------------------------------------------------------------------------------------------------- series
def test_every_step_has_a_point_and_its_phases_sum_to_it():
    shown = watched()
    found = named(shown)
    assert [point.value for point in found["step/ms"]] == [step.wall_ns / 1e6 for step in shown.run.steps]
    assert [point.step for point in found["step/ms"]] == list(range(len(shown.run.steps)))
    phases = [points for name, points in found.items() if name.startswith("phase/")]
    for number, point in enumerate(found["step/ms"]):
        assert sum(points[number].value for points in phases) == pytest.approx(point.value)


def test_a_phase_that_never_occurs_has_no_series():
    assert {name for name in named(watched()) if name.startswith("phase/")} == {
        f"phase/{name}_ms" for name in ("input", "forward", "backward", "optimizer", "host")
    }


def test_throughput_is_of_the_samples_of_a_step():
    shown = watched()
    rates = named(shown)["step/samples_per_s"]
    assert rates[-1].value == pytest.approx(64.0 / (shown.run.steps[-1].wall_ns / 1e9))
    assert "step/samples_per_s" not in named(watched(samples_per_step=None))


def test_the_machine_stands_at_the_step_that_was_under_way():
    shown = watched()
    cores = named(shown)["machine/cores_training"]
    assert [point.value for point in cores] == [1.5, 0.5]
    assert [point.unix_s for point in cores] == [STARTED_S + 0.5, STARTED_S + 4.0]
    at_ns = shown.run.header.launched_ns + 4_000_000_000
    under_way = max(number for number, step in enumerate(shown.run.steps) if step.start_ns <= at_ns)
    assert [point.step for point in cores] == [0, under_way]
    assert under_way > 0
    assert [point.value for point in named(shown)["machine/gpu_busy"]] == [0.0, 0.25]


def test_steps_that_are_means_are_numbered_by_what_they_stand_for():
    assert [point.step for point in named(watched(steps_each=64))["step/ms"]][:3] == [0, 64, 128]


def test_a_long_recording_becomes_means_that_keep_the_sum():
    shown = watched()
    many = shown.run.steps[1:] * 300
    points = named(watched(steps=many))["step/ms"]
    assert len(points) <= MAX_POINTS
    assert points[1].step == math.ceil(len(many) / MAX_POINTS)
    assert points[7].value == pytest.approx(many[0].wall_ns / 1e6)


def test_a_loss_that_is_no_number_leaves_a_gap():
    losses = (2.0, math.nan, math.inf, 0.5)
    shown = watched()
    found = named(replace(shown, run=replace(shown.run, losses=losses)))["loss"]
    assert [(point.step, point.value) for point in found] == [(0, 2.0), (3, 0.5)]


def test_a_recording_without_steps_has_no_series():
    assert all_series(empty()) == []


@pytest.mark.parametrize("make", EVERY, ids=lambda make: make.__name__)
def test_names_of_a_script_cannot_leave_the_folder(make):
    name = run_name(make())
    assert name
    assert "/" not in name
    assert not name.startswith(".")
    assert not set(name) & INVISIBLE
    assert len(name) <= 120
    assert all(math.isfinite(point.value) for series in all_series(make()) for point in series.points)


def test_words_say_what_the_report_says():
    assert texts(ordinary())["verdict"].startswith("Training waits: 62%")
    assert texts(tuned())["report"].startswith("### 1.61x as fast")
    assert facts(ordinary())["IN003"].startswith("62% of each step")
    assert facts(ordinary())["torch"] == "2.13.0"


# ---------------------------------------------------------------------------------------------------------- tensorboard
needs_tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed: the extra tensorboard"
)


def read_events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0})
    found.Reload()
    return found


@needs_tensorboard
def test_tensorboard_reads_every_series_and_the_report(tmp_path):
    from tensorboard.util.tensor_util import make_ndarray

    shown = watched()
    folder = write_tensorboard(shown, str(tmp_path / "runs"))
    assert folder == str(tmp_path / "runs" / "train.py-20250102-030405")
    found = read_events(folder)
    tags = found.Tags()["tensors"]
    assert {*tags} == {*named(shown), "flatout/verdict", "flatout/report"}
    for name, points in named(shown).items():
        events = found.Tensors(name)
        assert [event.step for event in events] == [point.step for point in points]
        assert [event.wall_time for event in events] == pytest.approx([point.unix_s for point in points])
        values = [make_ndarray(event.tensor_proto).item() for event in events]
        assert values == pytest.approx([point.value for point in points], rel=1e-6)
        assert found.SummaryMetadata(name).plugin_data.plugin_name == "scalars"
    assert found.SummaryMetadata("flatout/report").plugin_data.plugin_name == "text"
    [told] = make_ndarray(found.Tensors("flatout/report")[0].tensor_proto)
    assert told.decode() == texts(shown)["report"]


@needs_tensorboard
@pytest.mark.parametrize("make", [hostile, hostile_tune, empty], ids=lambda make: make.__name__)
def test_tensorboard_takes_every_report(make, tmp_path):
    write_tensorboard(make(), str(tmp_path))
    assert [path.parent.parent for path in tmp_path.rglob("events.out.tfevents.*")] == [tmp_path]


@needs_tensorboard
def test_a_recording_is_not_written_twice_where_tensorboard_would_draw_it_twice(tmp_path):
    write_tensorboard(ordinary(), str(tmp_path))
    with pytest.raises(UsageError, match="holds this recording already"):
        write_tensorboard(ordinary(), str(tmp_path))


@needs_tensorboard
def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="could not be written"):
        write_tensorboard(ordinary(), str(tmp_path / "file"))


# --------------------------------------------------------------------------------------------------------------- mlflow
needs_mlflow = pytest.mark.skipif(
    importlib.util.find_spec("mlflow") is None, reason="mlflow is not installed: the extra mlflow"
)


@needs_mlflow
@pytest.mark.parametrize("make", [ordinary, hostile, hostile_tune, empty], ids=lambda make: make.__name__)
def test_mlflow_reads_every_series_and_the_findings(make, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    shown = watched(make())
    identity = write_mlflow(shown, str(tmp_path / "runs"))
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=str(tmp_path / "runs"))
    run = client.get_run(identity)
    assert client.get_experiment(run.info.experiment_id).name == EXPERIMENT
    assert run.info.status == "FINISHED"
    assert {*run.data.metrics} == {*named(shown)}
    for name, points in named(shown).items():
        found = client.get_metric_history(identity, name)
        assert sorted((one.step, one.value) for one in found) == sorted((one.step, one.value) for one in points)
    assert run.data.params["torch"]
    for finding in shown.findings:
        assert f"flatout.{finding.code}" in run.data.tags
    assert run.data.tags["mlflow.note.content"].startswith("### ")
    assert not any(set(text) & INVISIBLE for text in (*run.data.tags.values(), *run.data.params.values()))


@needs_mlflow
def test_what_mlflow_refuses_is_told_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    with pytest.raises(UsageError, match="MLflow could not write to"):
        write_mlflow(ordinary(), "nonsense:" + str(tmp_path))


def test_the_hostile_name_is_one():
    assert set(HOSTILE) & INVISIBLE
