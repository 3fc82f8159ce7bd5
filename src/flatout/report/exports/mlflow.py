"""The recording as a run of MLflow, written by MLflow's own client.

Metrics as in `exports.series`; what it is of as parameters, verdict and findings as tags, the report as the run's
description. Nothing is written to MLflow's global state: an active run of the caller stays what it is.
"""

import os
from itertools import islice

from flatout.errors import UsageError
from flatout.report.exports.series import all_series, facts, run_name, texts
from flatout.report.visible import visible
from flatout.schema.report import Report

__all__ = ["EXPERIMENT", "write_mlflow"]

EXPERIMENT = "flatout"
"""The experiment that runs are put into, in place of MLflow's `Default`."""

_BATCH = 1000  # metrics that MLflow takes in one call
_LONGEST = 8000  # bytes of a tag; MLflow refuses more
_LONGEST_PARAMETER = 500  # MLflow 2 refuses more, later versions more than 6,000
_PARAMETERS = ("script", "device", "cpu", "cores", "torch", "python", "ranks")
_NO_TELEMETRY = "MLFLOW_DISABLE_TELEMETRY"
"""MLflow reports its use over the network unless this is set before it is imported; flatout promises none."""


def write_mlflow(report: Report, place: str) -> str:
    """Write the recording to the tracking server or store `place`, a URI or a folder; return the id of the run.

    Raises:
        UsageError: MLflow refuses, with its reason.
    """
    os.environ.setdefault(_NO_TELEMETRY, "true")
    from mlflow.exceptions import MlflowException

    try:
        return _write(report, place)
    except (MlflowException, OSError) as error:
        raise UsageError(
            f"MLflow could not write to {place}: {str(error).partition('. ')[0].strip('. ')}.",
            advice="A server (mlflow:http://HOST:5000) needs nothing else; for a folder MLflow requires "
            "MLFLOW_ALLOW_FILE_STORE=true, for sqlite:///FILE for the whole package (pip install mlflow).",
        ) from None


def _write(report: Report, place: str) -> str:
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=place)
    known = client.get_experiment_by_name(EXPERIMENT)
    experiment = known.experiment_id if known is not None else client.create_experiment(EXPERIMENT)
    started_ms = round(report.run.header.started_unix_s * 1000)
    told = {name: visible(text) for name, text in facts(report).items()}
    tags = {f"flatout.{name}": _cut(text, _LONGEST) for name, text in told.items() if name not in _PARAMETERS}
    run = client.create_run(
        experiment,
        start_time=started_ms,
        run_name=run_name(report),
        tags={**tags, "mlflow.note.content": _cut(texts(report)["report"], _LONGEST)},
    )
    identity = str(run.info.run_id)
    parameters = [Param(name, _cut(told[name], _LONGEST_PARAMETER)) for name in _PARAMETERS if name in told]
    client.log_batch(identity, params=parameters, tags=[RunTag("flatout.schema", "1")])
    metrics = (
        Metric(series.name, point.value, round(point.unix_s * 1000), point.step)
        for series in all_series(report)
        for point in series.points
    )
    while batch := list(islice(metrics, _BATCH)):
        client.log_batch(identity, metrics=batch)
    client.set_terminated(identity, end_time=started_ms + round(report.breakdown.wall_s * 1000))
    return identity


def _cut(text: str, num_bytes: int) -> str:
    """Return as much of `text` as fits."""
    return text.encode()[:num_bytes].decode(errors="ignore")
