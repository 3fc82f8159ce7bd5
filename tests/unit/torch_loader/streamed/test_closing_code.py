"""Code that runs where a stream's pass ends, found in generators of the script's own: `finally`, `with`, the like."""

import contextlib

import pytest

from flatout.torch_loader.streamed.closing_code import closing_code

LOG = []


class Noting:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        LOG.append("left")


@contextlib.contextmanager
def noting():
    try:
        yield
    finally:
        LOG.append("left")


def prints():
    try:
        yield 1
    finally:
        print("over")


def counts(state=LOG):
    number = 0
    try:
        for number in range(3):
            yield number
    finally:
        state.append(number)


def catches_its_closing():
    try:
        yield 1
    except ValueError:
        yield 2
    except GeneratorExit:
        LOG.append("closed")
        raise


def catches_all():
    try:
        yield 1
    except:
        LOG.append("closed")
        raise


def hands_on(inner=prints):
    yield from inner()


def in_a_context():
    with Noting():
        yield 1


def in_a_function_s_context():
    with noting():
        yield 1


class Stream:
    def __iter__(self):
        try:
            yield 1
        finally:
            self.ended = True


def opens():
    with open("numbers.txt") as file:
        yield from file


def closes():
    file = open("numbers.txt")  # noqa: SIM115
    try:
        yield from file
    finally:
        file.close()


def catches_others():
    for number in range(3):
        try:
            yield 1 / number
        except (ZeroDivisionError, OSError) as error:
            yield str(error)


def ends_before_it_yields():
    try:
        found = [1, 2]
    finally:
        LOG.append("read")
    yield from found


def returns():
    try:
        return [1]
    finally:
        LOG.append("no generator")


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (prints, "prints"),
        (counts, "counts"),
        (catches_its_closing, "catches_its_closing"),
        (catches_all, "catches_all"),
        (hands_on, "prints"),
        (in_a_context, "Noting.__exit__"),
        (in_a_function_s_context, "noting"),
        (Stream(), "Stream.__iter__"),
    ],
)
def test_it_is_named(thing, name):
    assert closing_code(thing) == name


@pytest.mark.parametrize("thing", [opens, closes, catches_others, ends_before_it_yields, returns, [1, 2]])
def test_what_only_closes_or_runs_earlier_is_none(thing):
    assert not closing_code(thing)
