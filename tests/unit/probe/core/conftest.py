"""Scripts that are run up to their first step."""

import argparse
import itertools
import sys
import textwrap

import pytest

from flatout.probe.core.planned_length import planned_length


class Batches:
    """Two, and nothing has their length."""

    def __iter__(self):
        return iter([1, 2])


class FirstStep(BaseException):
    """Ends a script at its first step."""


@pytest.fixture
def planned(tmp_path):
    """Return a function that runs a script up to its first step and says what is seen there."""

    numbers = itertools.count()

    def seen(script, **given):
        file = tmp_path / f"train_{next(numbers)}.py"
        file.write_text(textwrap.dedent(script))
        found = []

        def step():
            found.append(planned_length(sys._getframe(1)))
            raise FirstStep

        args = argparse.Namespace(start=0, epochs=30, max_steps=900)
        loader = Batches()
        scope = {"loader": loader, "step": step, "args": args, "__name__": "__main__", "__file__": str(file), **given}
        with pytest.raises(FirstStep):
            exec(compile(file.read_text(), str(file), "exec"), scope)
        return found[0]

    return seen
