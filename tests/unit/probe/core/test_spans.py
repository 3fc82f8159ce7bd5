"""The account of one thread: closed whatever happens in it."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.probe.watched import MS

from flatout.probe.core.spans import (
    CHECKPOINT,
    EPOCH_GAP,
    FORWARD,
    INPUT,
    LEAD,
    LOSS,
    NUM_SLOTS,
    SYNC,
    TAIL,
    PhaseTimer,
)

SLOTS = st.integers(0, CHECKPOINT) | st.just(EPOCH_GAP)
ACTS = st.lists(
    st.tuples(st.sampled_from(["enter", "leave", "cut", "clear"]), SLOTS, st.integers(-1, TAIL), st.integers(0, 10**9)),
    max_size=60,
)


def test_a_span_inside_another_takes_its_time_out_of_it():
    account = PhaseTimer(0)
    account.moment += 1 * MS
    account.enter(FORWARD)
    account.moment += 2 * MS
    account.enter(SYNC)
    account.moment += 4 * MS
    account.leave()
    account.moment += 8 * MS
    account.leave(LOSS)
    account.moment += 16 * MS
    start, end, slots = account.cut()
    assert (start, end) == (0, 31_000_000)
    assert {slot: ns // 10**6 for slot, ns in enumerate(slots) if ns} == {LEAD: 1, FORWARD: 10, SYNC: 4, LOSS: 16}


def test_host_time_is_named_only_when_no_span_is_open():
    account = PhaseTimer(0)
    account.enter(INPUT)
    account.enter(FORWARD)
    account.leave(LOSS)
    assert account.current == INPUT
    account.leave(TAIL)
    assert account.current == TAIL


def test_a_cut_inside_a_span_goes_on_in_that_span():
    account = PhaseTimer(0)
    account.enter(FORWARD)
    account.moment += 3 * MS
    _, _, first = account.cut(TAIL)
    account.moment += 5 * MS
    account.leave(TAIL)
    _, _, second = account.cut()
    assert (first[FORWARD], second[FORWARD]) == (3_000_000, 5_000_000)


def test_leaving_what_was_never_entered_is_harmless():
    account = PhaseTimer(0)
    account.leave()
    account.leave(TAIL)
    assert account.current == TAIL


@given(ACTS)
def test_whatever_happens_the_pieces_add_up_to_the_whole(acts):
    account = PhaseTimer(0)
    pieces = []
    for act, slot, host, ns in acts:
        account.moment += ns
        if act == "enter":
            account.enter(slot)
        elif act == "leave":
            account.leave(host)
        elif act == "clear":
            account.clear()
        else:
            pieces.append(account.cut(host))
    account.moment += 17
    pieces.append(account.cut())
    assert all(sum(slots) == end - start and len(slots) == NUM_SLOTS for start, end, slots in pieces)
    assert [start for start, _, _ in pieces] == [0, *(end for _, end, _ in pieces[:-1])]
    assert sum(sum(slots) for _, _, slots in pieces) == account.moment
