"""Predictions of random streams that are wrong: `loader-workers` with one fault each, as a careless change would make.

Found by `FLATOUT_EXTRA_FIXES=wrong_fixes,wrong_predictions`.
"""

import os

from wrong_fixes import Case

from flatout.fixes import loader_workers
from flatout.fixes.core.fix import Fix
from flatout.schema.phase import Phase
from flatout.schema.trial import Equivalence, Selection

SCRIPT = "drifting_patches"
FIXES = []
PREDICTIONS = []


class Predicted(Case):
    """A case with the setting that is tried."""

    @property
    def selection(self):
        """One worker that runs ahead."""
        return Selection(self.fix, {"workers": 2, "predicted": True})


def wrong(named):
    """Make a fix and its case of a function that spoils flatout in a process whose number it is given."""

    def add(spoil):
        name = spoil.__name__.replace("_", "-")

        def patch(site, *, workers=2, predicted=True):
            spoil(os.getpid())
            loader_workers.patch(site, workers=workers, predicted=predicted)

        fix = Fix(
            name=name,
            equivalence=Equivalence.BITWISE,
            phases=(Phase.INPUT,),
            patch=patch,
            bounds={key: loader_workers.FIX.bounds[key] for key in ("workers",)},
            on_request=True,
        )
        FIXES.append(fix)
        PREDICTIONS.append(Predicted(name, Equivalence.BITWISE, SCRIPT, named))
        return spoil

    return add


def replaced(home, name, change):
    """Put `change(original)` in place of a function of flatout's own."""
    setattr(home, name, change(getattr(home, name)))


@wrong("values")
def takes_batches_of_other_states(owner):
    from flatout.torch_loader.predicted import predicted_batches

    replaced(predicted_batches, "at_one_place", lambda original: lambda states, others: bool(states))


@wrong("values")
def leaves_the_streams_where_they_were(owner):
    from flatout.torch_loader.predicted.random_streams import StreamSet

    def change(original):
        def write(streams, states, now=None):
            if os.getpid() != owner:
                original(streams, states, now)

        return write

    replaced(StreamSet, "write", change)


@wrong("values")
def compares_all_streams_but_one(owner):
    from flatout.torch_loader.predicted import predicted_batches

    replaced(predicted_batches, "at_one_place", lambda original: lambda *states: original(*(two[:2] for two in states)))


@wrong("another one")
def hands_out_a_batch_twice(owner):
    from flatout.torch_loader.predicted.predicted_batches import PredictedBatches

    def change(original):
        last = []

        def unpacked(batches, number, made):
            last.append(original(batches, number, made))
            return last[-2] if len(last) % 3 == 0 else last[-1]

        return unpacked

    replaced(PredictedBatches, "_unpacked", change)


@wrong("values")
def loses_the_second_normal_number(owner):
    from flatout.torch_loader.predicted.random_streams import PythonStream

    def change(original):
        def write(stream, state):
            packed, second = state.mark
            original(stream, state._replace(mark=(packed, second if os.getpid() != owner else None)))

        return write

    replaced(PythonStream, "write", change)
