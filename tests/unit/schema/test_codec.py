"""Recordings on disk: everything comes back, and nothing else gets in."""

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from enum import Enum

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from flatout.errors import BadRecording
from flatout.schema.codec import (
    RUN_FILE,
    build_run,
    dump_record,
    read_order,
    read_records,
    read_run,
    step_columns,
    write_order,
    write_run,
)
from flatout.schema.order import Order
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Causes, End, Frame, Header, LineCost, Outside, Run, Step

WHOLE = st.integers(0, 2**53)
STEPS = st.builds(
    Step,
    start_ns=WHOLE,
    wall_ns=WHOLE,
    phases_ns=st.tuples(*[WHOLE] * len(STEP_PHASES)),
    num_batches=st.integers(1, 99),
    epoch=st.integers(0, 99),
    first_of_epoch=st.booleans(),
    forward_without_grad=st.booleans(),
    host_parts_ns=st.tuples(WHOLE, WHOLE, WHOLE),
    device_ns=st.just(()) | st.tuples(WHOLE, WHOLE, WHOLE),
)
SCALARS = {
    int: WHOLE,
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    str: st.text(max_size=5) | st.just("\udc80 and 'quotes'\n\x00"),
}


def anything(kind):
    """Values of any type that a Run is made of."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Step:
        return STEPS
    if kind in SCALARS:
        return SCALARS[kind]
    if origin in (types.UnionType, typing.Union):
        return st.none() | anything(next(part for part in args if part is not types.NoneType))
    if origin is tuple:
        return (
            st.lists(anything(args[0]), max_size=2).map(tuple)
            if args[-1] is Ellipsis
            else st.tuples(*map(anything, args))
        )
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(SCALARS[str], anything(args[1]), max_size=2)
    if issubclass(kind, Enum):
        return st.sampled_from(kind)
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{item.name: anything(hints[item.name]) for item in dataclasses.fields(kind)})


RUN = Run(
    header=Header(script="train.py", argv=("train.py", "--lr", "1")),
    steps=tuple(Step(n * 10, 10, (0, 0, 4, 4, 2, 0, 0, 0)) for n in range(25_000)),
    outside=(Outside(phase=Phase.VALIDATION, start_ns=5, wall_ns=7, with_grad=True, num_batches=3),),
    losses=(1.0, float("inf")),
    causes=Causes(lines=(LineCost(process="main", phase=Phase.HOST, stack=(Frame("a.py", 3, "f"),), seconds=1.0),)),
    seams={"torch:save": 3},
    notes=("a note",),
    end=End(reason="steps", at_ns=99),
)


@pytest.fixture
def stored(tmp_path):
    """A small recording, and its bytes."""
    file = tmp_path / RUN_FILE
    write_run(dataclasses.replace(RUN, steps=RUN.steps[:3]), file)
    return file, file.read_bytes()


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(anything(Run))
def test_every_run_comes_back_as_it_was(tmp_path, run):
    write_run(run, tmp_path / RUN_FILE)
    assert read_run(tmp_path) == read_run(tmp_path / RUN_FILE) == run


def test_many_steps_come_back_in_order(tmp_path):
    write_run(RUN, tmp_path / RUN_FILE)
    assert read_run(tmp_path) == RUN
    assert not list(tmp_path.glob("*.partial"))


def test_a_file_is_lines_of_plain_ascii(stored):
    lines = stored[1].decode("ascii").splitlines()
    assert json.loads(lines[0]) == {"kind": "flatout", "schema": 1}
    assert all("kind" in json.loads(line) for line in lines)


@pytest.mark.slow
def test_a_file_cut_off_anywhere_is_read_up_to_there(stored):
    file, data = stored
    first = data.index(b"\n") + 1
    for length in range(len(data)):
        file.write_bytes(data[:length])
        if length < first - 1:
            with pytest.raises(BadRecording):
                read_run(file)
        else:
            assert read_run(file).steps in ((), RUN.steps[:3])


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_refused_or_read_and_never_more(stored, data):
    file, good = stored
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(bytes(damaged))
    try:
        read_run(file)
    except BadRecording as refused:
        assert str(file) in str(refused)


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "3",
        '{"no": "kind"}',
        '{"kind": ["steps"]}',
        '{"kind": "steps"}',
        '{"kind": "steps", "start_ns": [1]}',
        '{"kind": "header"}',
        '{"kind": "header", "value": {"script": 3}}',
        '{"kind": "outside", "values": [{"phase": "lunch", "start_ns": 1, "wall_ns": 1}]}',
        '{"kind": "losses", "values": ["low"]}',
        '{"kind": "losses", "values": 3}',
        '{"kind": "facts", "seams": ["a"]}',
        '{"kind": "facts", "seams": {"a": "many"}}',
        '{"kind": "facts", "samples_per_step": "few"}',
        '{"kind": "causes", "value": {"lines": [{"process": "main"}]}}',
        '{"kind": "notes", "values": null}',
        "[" * 100_000,
    ],
)
def test_records_of_another_form_are_refused(stored, line):
    file, data = stored
    file.write_text(data.decode() + line + "\n" + dump_record("notes", {"values": ["the last line is a good one"]}))
    with pytest.raises(BadRecording):
        read_run(file)


def test_unknown_kinds_and_fields_are_passed_over(stored):
    file, data = stored
    later = [dump_record("of a later version", {"x": 1}), dump_record("end", {"value": {"reason": "steps", "new": 1}})]
    file.write_text(data.decode() + "\n".join(later) + "\n")
    assert read_run(file).end == End(reason="steps")


def test_records_of_one_kind_add_up_and_single_ones_are_replaced():
    columns = [step_columns(RUN.steps[:2]), step_columns(RUN.steps[2:5])]
    records = [{"kind": "steps", **column} for column in columns]
    records += [{"kind": "notes", "values": [text]} for text in ("a", "b")]
    records += [{"kind": "end", "value": {"reason": reason}} for reason in ("unknown", "steps")]
    run = build_run(records)
    assert run.steps == RUN.steps[:5]
    assert (run.notes, run.end.reason) == (("a", "b"), "steps")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "names no schema"),
        ("\n\n", "names no schema"),
        ('{"kind": "header"}\n', "names no schema"),
        ("import os\nos.remove('x')\n", "is damaged: line 1"),
        ('{"kind": "flatout", "schema": 2}\n', "has schema 2"),
        ('{"kind": "flatout"}\n', "has schema None"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path, content, message):
    file = tmp_path / "other.txt"
    file.write_text(content)
    with pytest.raises(BadRecording, match=message):
        read_records(file)


def test_what_is_not_there_or_not_text(tmp_path):
    with pytest.raises(BadRecording, match="holds no recording"):
        read_run(tmp_path)
    (tmp_path / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    with pytest.raises(BadRecording, match="cannot be read as a recording"):
        read_run(tmp_path / "image.png")


def test_nothing_half_written_is_ever_seen(tmp_path):
    file = tmp_path / RUN_FILE
    write_run(dataclasses.replace(RUN, steps=RUN.steps[:3]), file)
    before = file.read_bytes()
    with pytest.raises(TypeError):
        write_run(dataclasses.replace(RUN, notes=(object(),)), file)  # fails at its last line
    assert file.read_bytes() == before


def test_an_order_comes_back(tmp_path):
    order = Order(mode="deep", folder="/tmp/x", script="train.py", steps=7, all_devices=True)
    write_order(order, tmp_path / "order.json")
    assert read_order(tmp_path / "order.json") == order


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"mode": 3, "folder": "", "script": ""}'])
def test_what_is_no_order_is_refused(tmp_path, content):
    (tmp_path / "order.json").write_text(content)
    with pytest.raises(ValueError, match=r"."):
        read_order(tmp_path / "order.json")
