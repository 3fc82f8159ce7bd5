"""The recording as a run of TensorBoard, written by tensorboard's own event writer.

Scalars as in `exports.series`; verdict and report as texts. A run is one folder below the one that was named, so
several recordings stand beside each other: `tensorboard --logdir FOLDER`.
"""

from pathlib import Path

from flatout.errors import UsageError
from flatout.report.exports.series import all_series, run_name, texts
from flatout.schema.report import Report

__all__ = ["write_tensorboard"]

_QUEUE = 1000  # events that may wait for the thread that writes


def write_tensorboard(report: Report, place: str) -> str:
    """Write the recording below the folder `place` and return the folder of the run.

    Raises:
        UsageError: the recording is there already, or the folder cannot be written.
    """
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.scalar import metadata as scalars
    from tensorboard.plugins.text import metadata as words
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    folder = Path(place) / run_name(report)
    _require_new(folder)
    try:
        writer = EventFileWriter(str(folder), max_queue_size=_QUEUE)
        try:
            for series in all_series(report):
                told = scalars.create_summary_metadata(display_name="", description="")
                for point in series.points:
                    tensor = make_tensor_proto(point.value, dtype="float32")
                    value = Summary.Value(tag=series.name, tensor=tensor, metadata=told)
                    writer.add_event(Event(wall_time=point.unix_s, step=point.step, summary=Summary(value=[value])))
            told = words.create_summary_metadata(display_name="", description="")
            for name, text in texts(report).items():
                value = Summary.Value(tag=f"flatout/{name}", tensor=make_tensor_proto([text]), metadata=told)
                started = report.run.header.started_unix_s
                writer.add_event(Event(wall_time=started, step=0, summary=Summary(value=[value])))
        finally:
            writer.close()
    except OSError as error:
        raise UsageError(f"{folder} could not be written: {error.strerror or error}.") from None
    return str(folder)


def _require_new(folder: Path) -> None:
    """Refuse a folder with events: a second file beside them would draw every line twice."""
    if any(folder.glob("events.out.tfevents.*")):
        raise UsageError(
            f"{folder} holds this recording already.",
            "TensorBoard would show it twice.",
            "Remove that folder, or name another one.",
        )
