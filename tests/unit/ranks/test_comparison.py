"""Fingerprints of calls, of flatout.ranks.comparison, and random streams, of flatout.ranks.streams."""

import random
from types import SimpleNamespace

import numpy
import torch

from flatout.probe.core.seams import Seams
from flatout.ranks.comparison import fingerprint, trace_of
from flatout.ranks.streams import begin_alike, put_back, same_streams, taken


def test_the_same_call_has_the_same_fingerprint_and_others_have_not():
    x = torch.arange(12.0).view(3, 4)
    calls = [
        ("Net", [x]),
        ("Other", [x]),
        ("Net", [x + 1]),
        ("Net", [x.view(4, 3)]),
        ("Net", [x, True]),
        ("Net", [x, None]),
    ]
    found = [fingerprint(*call) for call in calls]
    assert found == [fingerprint(*call) for call in calls]
    assert len(set(found)) == 5  # what is no number and no tensor is left out


def test_random_streams_are_part_of_it():
    x = torch.ones(2)
    before = fingerprint("Net", [x])
    torch.rand(1)
    between = fingerprint("Net", [x])
    random.random()
    assert len({before, between, fingerprint("Net", [x])}) == 3


def test_odd_tensors_have_a_fingerprint():
    odd = [torch.ones(0), torch.ones(3).to_sparse(), torch.ones(3, dtype=torch.bool), torch.ones(2, 3).T]
    assert fingerprint("Net", odd) == fingerprint("Net", odd)


def test_streams_are_put_back_to_where_they_were():
    before = taken()
    drawn = torch.rand(2), random.random(), numpy.random.rand()
    assert not same_streams(before, taken())
    put_back(before)
    assert same_streams(before, taken())
    again = torch.rand(2), random.random(), numpy.random.rand()
    assert torch.equal(drawn[0], again[0])
    assert drawn[1:] == again[1:]


def test_streams_that_nobody_seeds_begin_alike():
    states = taken()
    found = []
    for _ in range(2):
        seams = Seams()
        begin_alike(seams, 7)
        try:
            random.seed()
            found.append((random.random(), numpy.random.rand(), numpy.random.default_rng().random()))
        finally:
            seams.undo()
    put_back(states)
    assert found[0] == found[1]


def trace(*parts, dims, depths, rows=2, structure="two", wrote=False):
    result = SimpleNamespace(parts=list(parts), structure=structure, wrote=wrote)
    result.tie = SimpleNamespace(rows=SimpleNamespace(number=rows))
    return trace_of(result, SimpleNamespace(results=dims, depths=depths, structure="two"))


def test_results_that_can_be_joined_have_one_kind():
    form = {"dims": (0, None), "depths": (2, 0)}
    one = trace(torch.ones(4, 3), torch.tensor(3.0), **form)
    assert one.fits and len(one.numbers) == 1
    assert trace(torch.zeros(6, 3), torch.tensor(3.0), rows=3, **form).kind == one.kind
    assert trace(torch.zeros(4, 3), torch.tensor(2.5), **form).values != one.values
    assert trace(torch.zeros(4, 3), torch.tensor(2.5), **form).numbers == ()
    kinds = {
        trace(torch.ones(4, 5), torch.tensor(3.0), **form).kind,
        trace(torch.ones(2, 3), torch.tensor(3.0), **form).kind,
        trace(torch.ones(4, 3).double(), torch.tensor(3.0), **form).kind,
        trace(torch.ones(4, 3), torch.tensor(3), **form).kind,
    }
    assert len(kinds) == 4 and one.kind not in kinds


def test_results_of_another_form_do_not_fit():
    form = {"dims": (0, None), "depths": (2, None)}
    assert trace(torch.ones(4, 3), 5, **form).fits
    assert not trace(torch.ones(4), 5, **form).fits
    assert not trace(torch.ones(3, 3), 5, **form).fits
    assert not trace(torch.ones(4, 3), torch.ones(()), **form).fits
    assert not trace(torch.ones(4, 3), 5, structure="other", **form).fits
    assert not trace(torch.ones(4, 3), 5, wrote=True, **form).fits
    assert trace(torch.ones(4, 3), 5, wrote=True, **form).kind != trace(torch.ones(4), 5, **form).kind
