"""Whether one training of a script is over and another has begun: a teacher, then its student.

Trainings are told apart by what their optimizers hold: how many tensors, of how many numbers. So folds of one model,
the clients of a federation and the tasks of meta-learning, each with an optimizer of its own, stay one training.
"""

from collections.abc import Set

__all__ = ["TrainingStages"]

_CONFIRMED = 12  # steps in a row without any optimizer of the training before
_MOST = 4  # trainings one after another that are told apart

_Held = tuple[int, int]  # what an optimizer holds: tensors, numbers


class TrainingStages:
    """The trainings that have followed each other, by the optimizers of each step."""

    def __init__(self) -> None:
        """None has begun."""
        self._current: set[_Held] = set()
        self._earlier: set[_Held] = set()
        self._begun = 1  # trainings
        self._beside: set[_Held] = set()  # those seen in one step with it
        self._other: set[_Held] = set()  # those that may be another training's
        self._since = 0  # the first step of these
        self._count = 0
        self._latest: Set[_Held] = frozenset()

    def step(self, number: int, held: Set[_Held]) -> int:
        """Take the optimizers of step `number`, from 1 on; return the first step of a training that has begun.

        0 where none has. 1 where a training that was over goes on: then both are one, and it began with the script.
        """
        held = held or self._latest  # of a step like the one before nothing is said
        self._latest = held
        if not held:
            return 0
        if not self._current:
            self._current |= held
            return 0
        if held & self._current:
            new = held - self._current
            self._current |= self._other | (new & self._beside)  # once beside it is where one follows the other
            self._beside, self._other = self._beside | new, set()
            return 0
        if held & self._earlier:
            self._current |= self._earlier | held | self._other
            self._earlier, self._other = set(), set()
            self._begun = _MOST
            return 1
        if not self._other:
            self._since, self._count = number, 0
        self._other |= held
        self._count += 1
        if self._count < _CONFIRMED or self._begun >= _MOST:
            return 0
        self._begun += 1
        self._earlier |= self._current
        self._current, self._beside, self._other = self._other, set(), set()
        return self._since
