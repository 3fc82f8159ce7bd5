"""Training loops that change, copy, pickle, replace, freeze and compile their models; each gives what came of it.

A loop is a function without arguments that trains from a fixed seed, on a CPU, in well under a second, and returns its
losses and whatever else it ends with. `LOOPS` has all of them by name.
"""

from tests.loops import copies, derivatives, outputs, surgery, trainers
from tests.loops.registry import LOOPS

__all__ = ["LOOPS", "copies", "derivatives", "outputs", "surgery", "trainers"]
