"""How often loops are gone through: what they choose, what ends them before, and where their counters go up.

Modules: flatout.probe.core.source_values.
"""

import pytest

from flatout.schema.run import Planned

SCRIPTS = {
    "phases of an epoch": (
        """
        data = {"train": loader, "val": loader}
        for epoch in range(9):
            for phase in ["train", "val"]:
                for batch in data[phase]:
                    step()
        """,
        Planned(passes=9),
    ),
    "phases by a name": (
        """
        splits = ("training", "validation", "test")
        data = dict.fromkeys(splits, loader)
        for epoch in range(9):
            for split in splits:
                for batch in data[split]:
                    step()
        """,
        Planned(passes=9),
    ),
    "two loaders in turn": (
        """
        for epoch in range(9):
            for source in (loader, loader):
                for batch in source:
                    step()
        """,
        Planned(),
    ),
    "stages of different length": (
        """
        for length in [4, 8]:
            for epoch in range(length):
                for batch in loader:
                    step()
        """,
        Planned(),
    ),
    "early stopping": (
        """
        for epoch in range(100):
            for batch in loader:
                step()
            if best < 0.1:
                break
        """,
        Planned(),
    ),
    "a return from the middle": (
        """
        def fit():
            for epoch in range(100):
                for batch in loader:
                    step()
                if epoch > args.epochs:
                    return epoch
        fit()
        """,
        Planned(),
    ),
    "a break of the pass alone": (
        """
        for epoch in range(100):
            for number, batch in enumerate(loader):
                if number == 20:
                    break
                step()
        """,
        Planned(passes=100),
    ),
    "tried again": (
        """
        for epoch in range(6):
            for attempt in range(3):
                try:
                    for batch in loader:
                        step()
                    break
                except RuntimeError:
                    continue
        """,
        Planned(),
    ),
    "a bound that changes": (
        """
        left = 10
        for again in range(left):
            left = 32
            for batch in loader:
                step()
        """,
        Planned(),
    ),
    "samples": (
        """
        seen = 0
        while seen < 8000:
            for batch in loader:
                step()
                seen += 16
        """,
        Planned(),
    ),
    "patience": (
        """
        waited = 0
        while waited < 5:
            for batch in loader:
                step()
            waited += 1
            if better:
                waited = 0
        """,
        Planned(),
    ),
    "sizes": (
        """
        size = 16
        while size <= 64:
            for batch in loader:
                step()
            size *= 2
        """,
        Planned(),
    ),
    "seconds": (
        """
        import time
        begin = spent = 0
        while spent < 20:
            for batch in loader:
                step()
            spent = int(time.time()) - begin
        """,
        Planned(),
    ),
    "folds by while": (
        """
        fold = 0
        while fold < 5:
            for epoch in range(10):
                for batch in loader:
                    step()
            fold += 1
        """,
        Planned(passes=50),
    ),
    "resumed": (
        """
        epoch = 12
        while epoch < 16:
            for batch in loader:
                step()
            epoch += 1
        """,
        Planned(passes=4),
    ),
    "counted before": (
        """
        class State:
            round = 2
        state = State()
        while state.round < 12:
            state.round += 1
            for batch in loader:
                step()
        """,
        Planned(passes=10),
    ),
    "steps of the optimizer": (
        """
        update = 0
        while update < 300:
            for number, batch in enumerate(loader):
                step()
                if number % 4 == 3:
                    update += 1
        """,
        Planned(updates=300),
    ),
    "counted by a method": (
        """
        class Trainer:
            def __init__(self):
                self.global_step = 0
            def advance(self):
                self.global_step += 1
            def run(self):
                while self.global_step < 250:
                    for batch in loader:
                        step()
                        self.advance()
        Trainer().run()
        """,
        Planned(updates=250),
    ),
    "until there are no more": (
        """
        for epoch in range(7):
            batches = iter(loader)
            while True:
                try:
                    batch = next(batches)
                except StopIteration:
                    break
                step()
        """,
        Planned(passes=7),
    ),
    "for ever, one after the other": (
        """
        batches = iter(loader)
        while True:
            batch = next(batches)
            step()
        """,
        Planned(),
    ),
}


@pytest.mark.parametrize("style", SCRIPTS)
def test_a_loop_tells_how_often_it_is_gone_through(planned, style):
    script, expected = SCRIPTS[style]
    given = {"best": 1.0, "better": False}
    assert planned(script, **given) == expected


class Endless:
    """Is asked for batches; a generator asks it, so that the generator is among the frames."""

    def __init__(self):
        self.step = lambda: None

    def __iter__(self):
        return self

    def __next__(self):
        self.step()
        return 0


GENERATORS = {
    "one after the other": ("for number in range(480):\n    batch = next(batches)", Planned(steps=480, pass_steps=480)),
    "walked through": ("for batch in batches:\n    pass", Planned()),
}


@pytest.mark.parametrize("handed", ["yield from source", "for each in source:\n            yield each"])
@pytest.mark.parametrize("style", GENERATORS)
def test_batches_of_an_endless_generator_are_counted_by_who_asks(planned, style, handed):
    asked, expected = GENERATORS[style]
    script = f"""
def endless(source):
    while True:
        {handed}

source.step = step
batches = endless(source)
{asked}
"""
    assert planned(script, source=Endless()) == expected


@pytest.mark.parametrize("handed", ["yield from source", "for each in source:\n            yield each"])
def test_a_generator_of_so_many_passes_tells_them(planned, handed):
    script = f"""
def passes(source):
    for epoch in range(5):
        {handed}

source.step = step
for batch in passes(source):
    pass
"""
    assert planned(script, source=Endless()) == Planned(passes=5)
