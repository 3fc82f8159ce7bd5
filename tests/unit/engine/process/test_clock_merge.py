"""What each process wrote of the steps that are drawn is put on one clock, and the rest is left out."""

from flatout.engine.process.clock_merge import timeline
from flatout.schema.run import Span


def span(lane, name, start, wall):
    return Span(lane=lane, name=name, start_ns=start, wall_ns=wall)


def test_spans_of_workers_stand_where_they_ran():
    own = [
        span("steps", "step 4", 1000, 100),
        span("training thread", "input", 990, 60),
        span("reading", "sample", 0, 5),
    ]
    workers = [
        span("worker 10", "sample", 1090, 80),
        span("worker 2", "sample", 950, 49),
        span("worker 2", "sample", 900, 100),
        span("worker 2", "collate", 1000, 10),
        span("worker 2", "sample", 1100, 10),
        span("worker 3", "sample", 700, 100),
        span("worker 3", "collate", 800, 10),
        span("worker 4", "sample", 1200, 10),
    ]
    found = timeline(own, workers)
    assert [(one.lane, one.name, one.start_ns, one.wall_ns) for one in found] == [
        ("steps", "step 4", 0, 100),
        ("training thread", "input", -10, 60),
        ("worker 2", "collate", 0, 10),
        ("worker 3", "collate", -200, 10),
        ("worker 10", "sample", 90, 80),
    ]


def test_without_steps_there_is_nothing_to_draw():
    assert timeline([span("reading", "sample", 0, 5)], [span("worker 0", "sample", 0, 5)]) == ()
