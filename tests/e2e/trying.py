"""Fixes to try in tests: one that helps, one that changes results, and some that end badly. `FLATOUT_EXTRA_FIXES`."""

import os

from flatout.fixes.core.fix import Fix
from flatout.schema.phase import Phase
from flatout.schema.trial import Equivalence


def _instead_of_sleeping(act):
    def patch(site):
        def make(original):
            def sleep(seconds):
                site.hit("time.sleep")
                act(original, seconds)

            return sleep

        site.wrap("time:sleep", make)

    return patch


def _half(original, seconds):
    original(seconds / 2)


def _abort(original, seconds):
    os.abort()


def _out_of_memory(original, seconds):
    raise MemoryError("cannot allocate 4 GiB")


def _full_disk(original, seconds):
    raise OSError(28, "No space left on device")


def _forever(original, seconds):
    while True:
        original(1)


def _other_rate(site):
    """Sleep not at all, and train with another learning rate."""
    _instead_of_sleeping(lambda original, seconds: None)(site)

    def make(original):
        def step(optimizer, *args, **kwargs):
            for group in optimizer.param_groups:
                group["lr"] *= 1.01
            try:
                return original(optimizer, *args, **kwargs)
            finally:
                for group in optimizer.param_groups:
                    group["lr"] /= 1.01

        return step

    site.wrap("torch.optim.sgd:SGD.step", make)


def _nothing(site):
    _instead_of_sleeping(lambda original, seconds: original(seconds))(site)


def _fix(name, patch, **options):
    return Fix(
        name=name, equivalence=Equivalence.BITWISE, phases=(Phase.HOST,), patch=patch, switchable=True, **options
    )


FIXES = (
    _fix("t-abort", _instead_of_sleeping(_abort)),
    _fix("t-disk", _instead_of_sleeping(_full_disk)),
    _fix("t-half", _instead_of_sleeping(_half)),
    _fix("t-hang", _instead_of_sleeping(_forever)),
    _fix("t-memory", _instead_of_sleeping(_out_of_memory)),
    _fix("t-nothing", _nothing),
    _fix("t-rate", _other_rate),
    Fix(
        name="t-apart", equivalence=Equivalence.BITWISE, phases=(Phase.HOST,), patch=_instead_of_sleeping(_half)
    ),  # as t-half, but only from the start of a process
)
