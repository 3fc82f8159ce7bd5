"""Which instruction took the time before a function that has just begun."""

import dis

import pytest

from flatout.probe.core.instructions import before, has_just_begun


def called():
    return 1


def frees(numbers):
    rest = called()
    del numbers  # HERE
    called()
    return rest


def binds(pairs):
    for first, second in pairs:  # HERE
        called()
        print(first, second)


def computes(first, second):
    called()
    product = first * second  # HERE
    return called() + product


def calls_alone(first):
    called()
    first(called())  # HERE
    return first


def offsets_of_calls(function):
    return [each.offset for each in dis.get_instructions(function) if each.opname == "CALL"]


def line_at(function, offset):
    lines = [line for start, end, line in function.__code__.co_lines() if start <= offset < end]
    return lines[0] - function.__code__.co_firstlineno


@pytest.mark.parametrize(
    ("function", "call", "line"), [(frees, 1, 2), (binds, 0, 1), (computes, 1, 2), (calls_alone, 2, 2)]
)
def test_what_takes_time_before_a_call(function, call, line):
    assert line_at(function, before(function.__code__, offsets_of_calls(function)[call])) == line


def test_a_call_behind_a_call_has_nothing_before_it():
    code = calls_alone.__code__
    last = offsets_of_calls(calls_alone)[2]
    assert before(code, last) == last


def test_a_function_that_has_just_begun():
    code = called.__code__
    begins = next(each.offset for each in dis.get_instructions(called) if each.opname == "RESUME")
    assert has_just_begun(code, begins)
    assert not any(has_just_begun(code, offset) for offset in range(-2, len(code.co_code) + 4, 2) if offset != begins)


def test_a_generator_that_is_asked_for_its_next_value():
    def numbers():
        yield 1
        yield 2

    code = numbers.__code__
    begins = [each.offset for each in dis.get_instructions(numbers) if each.opname == "RESUME"]
    assert len(begins) == 3
    assert all(has_just_begun(code, offset) for offset in begins)
