"""Work with known lines, for tests of what samples them."""

import inspect
import json
import time


def line_of(function, text):
    """Return the number of the line of a function that holds `text`."""
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


def slow_decode(stop):
    """Compute until `stop` is set."""
    while not stop.is_set():
        json.dumps(list(range(20_000)))  # DECODE


def nap(stop):
    """Sleep until `stop` is set."""
    while not stop.is_set():
        time.sleep(0.01)  # NAP
