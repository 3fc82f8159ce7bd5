"""Frozen data to plain JSON values and back."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from flatout.schema.phase import Phase
from flatout.schema.plain import from_plain, to_plain


@dataclass(frozen=True, slots=True)
class Place:
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    name: str = ""
    weight: float = 0.0
    ready: bool = False
    kind: Phase = Phase.HOST
    at: Place | None = None
    size: float | None = None
    pair: tuple[int, str] = (0, "")
    numbers: tuple[float, ...] = ()
    places: tuple[Place, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    extra: object = None


FULL = Thing(
    name="n\u00e4me \udcff",
    weight=1.5,
    ready=True,
    kind=Phase.INPUT,
    at=Place("train.py", 3),
    size=2.0,
    pair=(1, "a"),
    numbers=(1.0, 2.0),
    places=(Place("a.py", 1), Place("b.py", 2)),
    counts={"Linear": 3},
    extra=[1, {"a": None}],
)


@pytest.mark.parametrize("thing", [Thing(), FULL])
def test_there_and_back(thing):
    plain = to_plain(thing)
    assert from_plain(Thing, plain) == thing
    assert plain["kind"] == thing.kind.value
    assert isinstance(plain["places"], list)


def test_what_is_absent_takes_its_default_and_what_is_unknown_is_passed_over():
    assert from_plain(Thing, {"name": "a", "of a later version": 1}) == Thing(name="a")


def test_whole_numbers_stand_for_floats():
    found = from_plain(Thing, {"weight": 2, "numbers": [1, 2.5]})
    assert (found.weight, found.numbers) == (2.0, (1.0, 2.5))
    assert type(found.weight) is type(found.numbers[0]) is float


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"name": 3}, "Thing.name: expected str, found int"),
        ({"weight": "heavy"}, "Thing.weight: expected float, found str"),
        ({"weight": True}, "Thing.weight: expected float, found bool"),
        ({"weight": None}, "Thing.weight: expected float, found NoneType"),
        ({"kind": "lunch"}, "Thing.kind: 'lunch' is not a valid Phase"),
        ({"at": {"file": "a.py", "line": "3"}}, "Thing.at: Place.line: expected int, found str"),
        ({"at": {"file": "a.py"}}, "Thing.at: Place:"),
        ({"pair": [1]}, "Thing.pair: expected 2 values, found 1"),
        ({"pair": [1, 2]}, "Thing.pair: expected str, found int"),
        ({"numbers": 3}, "Thing.numbers: expected list, found int"),
        ({"places": [None]}, "Thing.places: expected dict, found NoneType"),
        ({"counts": ["Linear"]}, "Thing.counts: expected dict, found list"),
        ({"counts": {"Linear": "3"}}, "Thing.counts: expected int, found str"),
        ([], "expected dict, found list"),
    ],
)
def test_what_has_another_form_is_refused_by_name(plain, message):
    with pytest.raises(ValueError, match=r".") as refused:
        from_plain(Thing, plain)
    assert message in str(refused.value)
