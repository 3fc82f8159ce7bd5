"""The loops around a step tell how long the training is to be, in the styles in which people write them."""

import sys
import weakref

import pytest

from flatout.probe.core.planned_length import planned_length
from flatout.schema.run import Planned

SCRIPTS = {
    "plain": (
        """
        for epoch in range(10):
            for batch in loader:
                step()
        """,
        Planned(passes=10),
    ),
    "arguments": (
        """
        def main():
            for epoch in range(args.start, args.epochs):
                train_epoch()

        def train_epoch():
            for number, batch in enumerate(loader):
                step()

        args.start, args.epochs = 2, 30
        main()
        """,
        Planned(passes=28),
    ),
    "bars, settings in a dictionary": (
        """
        from types import SimpleNamespace
        tqdm = lambda things, **given: things
        config = {"training": {"epochs": 7}}
        for epoch in tqdm(range(config["training"]["epochs"]), desc="epochs"):
            for batch in tqdm(loader):
                step()
        """,
        Planned(passes=7),
    ),
    "words of the command line": (
        """
        import sys
        words = ["train.py", "12"]
        for epoch in range(int(words[1]) if len(words) > 1 else 6):
            for batch in loader:
                step()
        """,
        Planned(passes=12),
    ),
    "defaults": (
        """
        config = {"epochs": None}
        for epoch in range(config["epochs"] or 4):
            for batch in loader:
                step()
        """,
        Planned(passes=4),
    ),
    "folds": (
        """
        folds = [1, 2, 3]
        for fold in folds:
            for epoch in range(1, 5 + 1):
                for batch in loader:
                    step()
        """,
        Planned(passes=15),
    ),
    "a class of its own": (
        """
        class Trainer:
            max_passes = 6
            def fit(self):
                for self.epoch in range(self.max_passes):
                    self.once()
            def once(self):
                with open(__file__) if False else self:
                    for batch in loader:
                        try:
                            step()
                        finally:
                            pass
            def __enter__(self):
                pass
            def __exit__(self, *_):
                pass
        Trainer().fit()
        """,
        Planned(passes=6),
    ),
    "steps": (
        """
        batches = iter(loader)
        for number in range(5000):
            batch = next(batches)
            step()
        """,
        Planned(steps=5000, pass_steps=5000),
    ),
    "hand-made batches": (
        """
        n, size = 1000, 64
        for epoch in range(3):
            for begin in range(0, n, size):
                step()
        """,
        Planned(steps=48, pass_steps=16),
    ),
    "rows in a new order": (
        """
        import torch
        rows = torch.zeros(1000, 4)
        for epoch in range(3):
            for batch in torch.randperm(len(rows)).split(64):
                step()
        """,
        Planned(steps=48, pass_steps=16),
    ),
    "rows cut up": (
        """
        import torch
        order = torch.arange(100)
        for epoch in range(2):
            for batch in torch.split(order, 32):
                step()
        """,
        Planned(steps=8, pass_steps=4),
    ),
    "words cut up": (
        """
        for epoch in range(3):
            for word in "a b c".split(" "):
                step()
        """,
        Planned(passes=3),
    ),
    "while steps": (
        """
        done = 0
        while done < args.max_steps:
            for batch in loader:
                step()
                done += 1
        """,
        Planned(steps=900),
    ),
    "while epochs": (
        """
        epoch = 0
        while epoch < args.epochs and not False:
            for batch in loader:
                step()
            epoch += 1
        """,
        Planned(passes=30),
    ),
    "one pass": (
        """
        for batch in loader:
            step()
        """,
        Planned(passes=1),
    ),
    "for ever": (
        """
        while True:
            for batch in loader:
                step()
        """,
        Planned(),
    ),
    "a step in the else of a loop": (
        """
        for number in range(3):
            pass
        else:
            for batch in loader:
                step()
        """,
        Planned(passes=1),
    ),
    "no loop": (
        """
        step()
        """,
        Planned(),
    ),
}


@pytest.mark.parametrize("style", SCRIPTS)
def test_the_loops_tell_how_long_the_training_is(planned, style):
    script, expected = SCRIPTS[style]
    assert planned(script) == expected


def test_nothing_of_the_script_is_called(planned):
    asked = []

    class Schedule:
        def __len__(self):
            asked.append("length")
            return 2

        def __iter__(self):
            return iter([1, 2])

        @property
        def epochs(self):
            asked.append("epochs")
            return 3

        def __getattr__(self, name):
            asked.append(name)
            return 3

    script = """
        number = 0
        while number < schedule.others:
            for again in schedule:
                for batch in loader:
                    step()
    """
    schedule = Schedule()
    assert planned(script, schedule=schedule) == Planned()
    assert asked == ["others"]  # by the script itself
    asked.clear()
    script = "for epoch in range(schedule.epochs):\n    for batch in loader:\n        step()\n"
    assert planned(script, schedule=schedule) == Planned()
    assert asked == ["epochs"]


def test_code_without_a_source_says_nothing():
    found = []
    scope = {"__name__": "__main__", "loader": [1], "step": lambda: found.append(planned_length(sys._getframe(1)))}
    exec("for epoch in range(3):\n    for batch in loader:\n        step()\n", scope)
    assert found[0] == Planned()


def test_nothing_of_a_function_is_kept_alive():
    class Model:
        pass

    def train():
        model, epochs = Model(), 3
        gone = weakref.ref(model)
        for _ in range(epochs):
            planned_length(sys._getframe())
            del model
            return gone()

    assert train() is None


def test_variables_stay_as_they_are():
    def train():
        epochs, step = 3, 0
        for _epoch in range(epochs):
            planned_length(sys._getframe())
            step += 1
        return epochs, _epoch, step

    assert train() == (3, 2, 3)


def test_what_locals_gave_the_script_stays():
    def train(lr, epochs):
        settings = locals()
        for epoch in range(epochs):
            model = object()
            planned_length(sys._getframe())
            return settings, epoch, model

    settings, *_ = train(0.1, 3)
    assert settings.items() >= {"lr": 0.1, "epochs": 3}.items()
