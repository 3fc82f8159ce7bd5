"""The staircase of ceilings below the account."""

from dataclasses import replace

from tests.unit.report.specimens import report, run

from flatout.report.headroom import headroom_lines, rows, sentences, with_workers
from flatout.report.html.page import page
from flatout.report.layout import Look
from flatout.schema.facts import HELD_INPUT, HELD_RAW, HELD_SAMPLES, HELD_TRANSFER, LOADER_ALONE, LoaderFacts
from flatout.schema.finding import Ceiling


def held(name, speedup, width=0.02, pairs=8):
    return Ceiling(
        ceiling=name,
        median_ms=77.0,
        speedup=speedup,
        low=speedup * (1 - width),
        high=speedup * (1 + width),
        num_pairs=pairs,
    )


EVERY_PLACE = (
    held(HELD_INPUT, 100 / 18),
    held(HELD_TRANSFER, 100 / 17),
    held(HELD_SAMPLES, 100 / 21),
    held(HELD_RAW, 100 / 59),
    held(LOADER_ALONE, 100 / 80),
)


def shown(headroom, **look):
    return [line.plain.rstrip() for line in headroom_lines(headroom, report().breakdown, Look(**look))]


def test_places_stand_in_the_order_in_which_a_batch_comes_by_them_in_time_of_the_step_as_it_is():
    assert shown(EVERY_PLACE)[:7] == [
        "Headroom: a step with replayed input, place by place (95% intervals, +-2%):",
        "  as it is                   100 ms",
        "  raw samples replayed      59.0 ms  56.7 to 61.3      41% reading",
        "  samples replayed          21.0 ms  19.0 to 23.0      38% transforms",
        "  one batch replayed        18.0 ms  16.0 to 20.0     3.0% collate and sampler",
        "  one batch on the device   17.0 ms  15.0 to 19.0     1.0% copies",
        "The largest part of the step there is reading 41% (39% to 43%); then",
    ]


def test_the_loader_alone_says_which_of_the_two_is_the_slower():
    slow, fast = (
        sentences(EVERY_PLACE, report().breakdown)[-1],
        sentences((EVERY_PLACE[0], held(LOADER_ALONE, 10)), report().breakdown),
    )
    assert slow == (
        "The loader alone, without any training, takes 80.0 ms a batch (800 samples/s), 77.5 to 82.6 ms in n=8 blocks; "
        "the training without it 18.0 ms: the loader is slower than the training."
    )
    assert fast[-1].endswith("the loader is no slower than the training.")


def test_of_workers_the_hand_over_is_named():
    found = headroom_lines(EVERY_PLACE, report().breakdown, Look(width=80), workers=True)
    assert found[4].plain.rstrip() == "  one batch replayed        18.0 ms  16.0 to 20.0     3.0% the rest of the input"
    loaders = (LoaderFacts(is_training=True), LoaderFacts(num_workers=2))
    assert not with_workers(replace(run(), loaders=loaders))
    assert with_workers(replace(run(), loaders=(replace(loaders[0], num_workers=1),)))


def test_what_cannot_be_held_is_no_stage_of_its_own():
    assert [row.stage for row in rows((EVERY_PLACE[0], EVERY_PLACE[2]), report().breakdown)] == [
        "",
        "making samples",
        "collate and sampler",
    ]
    assert [row.stage for row in rows((EVERY_PLACE[0], EVERY_PLACE[3]), report().breakdown)] == [
        "",
        "reading",
        "transforms, collate",
    ]
    assert [row.stage for row in rows(EVERY_PLACE[:1], report().breakdown)] == ["", "input"]


def test_without_ceilings_there_is_no_staircase():
    assert shown(()) == []
    assert shown((EVERY_PLACE[-1],)) == []


def test_no_line_is_wider_than_the_page():
    strange = replace(EVERY_PLACE[0], ceiling="x" * 70, num_pairs=0)
    for width in (30, 50, 80):
        assert all(len(line) <= width for line in shown((*EVERY_PLACE, strange), width=width))


def test_a_time_without_an_end_is_no_trouble():
    strange = (held(HELD_INPUT, 0.0), held(HELD_RAW, float("inf")), held(LOADER_ALONE, 0.0))
    assert len(shown(strange)) > 2


def test_the_page_has_the_same_staircase():
    text = page(replace(report(), headroom=EVERY_PLACE))
    for said in ("raw samples replayed", "59.0 ms", "56.7 to 61.3", "collate and sampler", "The loader alone"):
        assert said in text
