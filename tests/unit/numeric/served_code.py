"""Functions written to a file, compiled at once, and called beside the plain ones."""

import copy
import importlib.util
import sys

import numpy as np

from flatout.numeric import functions, hot_code, served
from flatout.numeric.comparison import same_bits


class Told:
    """What compiled code has told of itself."""

    def __init__(self, monkeypatch):
        self.used, self.left, self.differing = [], [], []
        monkeypatch.setattr(served, "note", self.used.append)
        monkeypatch.setattr(served, "leaves", lambda name, reason: self.left.append(reason))
        monkeypatch.setattr(served, "differs", lambda name, reason: self.differing.append(name))


def at_once(monkeypatch):
    """Compile at the first call, whether it is worth it or not, and return what is told."""
    monkeypatch.setattr(hot_code, "WORTH_S", 0.0)
    monkeypatch.setattr(hot_code, "_LEAST_GAIN", 0.0)
    monkeypatch.setattr(hot_code, "_RARELY", 1e9)
    return Told(monkeypatch)


def loaded(folder, text, name="script"):
    """Return a module with that text, imported from a file."""
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(f"{name}_{folder.name.replace('-', '_')}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def outcome(function, arguments):
    """Return what a call gives or raises, and what it leaves in its arguments."""
    given = copied(arguments)
    try:
        return function(*given), None, given
    except Exception as error:
        return None, (type(error), str(error)), given


def copied(arguments):
    return tuple(each.copy(order="K") if isinstance(each, np.ndarray) else copy.deepcopy(each) for each in arguments)


def same(one, other):
    return same_bits(one[0], other[0]) and one[1] == other[1] and all(map(same_bits, one[2], other[2]))


def agree(folder, text, *calls, times=hot_code.FIRST_PROVEN + 3, name="f"):
    """Call `name` of a file compiled and plain; return whether every outcome is the same."""
    text = f"import math\nimport numpy as np\nimport flatout\n\n{text}"
    module = loaded(folder, text.replace(f"def {name}(", f"@flatout.compiled\ndef {name}(", 1))
    function = getattr(module, name)
    assert function.__wrapped__ is not function
    for _ in range(times):
        for arguments in calls:
            mine, theirs = outcome(function, arguments), outcome(function.__wrapped__, arguments)
            assert same(mine, theirs), f"{mine} is not {theirs}, for {arguments}"
    return True


def states():
    """Return what is known of the newest piece, by kinds."""
    return list(list(functions._pieces.values())[-1][0]._states.values())


def num_served():
    """Return how many calls of the newest piece were served."""
    return sum(state.served for state in states())
