"""A Report for other programs: a browser, Perfetto, speedscope, a pull request; TensorBoard, MLflow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flatout.report.exports.chrome import chrome_trace
from flatout.report.exports.markdown import markdown
from flatout.report.exports.mlflow import write_mlflow
from flatout.report.exports.speedscope import speedscope
from flatout.report.exports.tensorboard import write_tensorboard
from flatout.report.html.page import page
from flatout.schema.report import Report

__all__ = ["EXPORTS", "TRACKERS", "Tracker"]

EXPORTS: Mapping[str, Callable[[Report], str]] = {
    ".html": page,
    ".trace.json": chrome_trace,
    ".speedscope.json": speedscope,
    ".md": markdown,
}
"""How a file's name ends, and what makes its text."""


@dataclass(frozen=True, slots=True)
class Tracker:
    """A program that keeps many runs: `write(report, place)` hands one to it by its own library, an extra of ours."""

    package: str  # what has to be importable
    write: Callable[[Report, str], str]


TRACKERS: Mapping[str, Tracker] = {
    "tensorboard": Tracker("tensorboard", write_tensorboard),
    "mlflow": Tracker("mlflow", write_mlflow),
}
"""What stands before the colon of `tensorboard:FOLDER`; each is the name of the extra, too."""
