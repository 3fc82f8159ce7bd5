"""What a data set sets up for itself when it is first read, told from what it counts or replaces."""

import functools
from typing import Any

from flatout.watch.components import attributes_of, parts
from flatout.watch.dataset_state import RandomStates, random_states, restore_random_states, same
from flatout.watch.forked_copy import ask_a_copy
from flatout.watch.state_watch import StateWatch

__all__ = ["Attributes", "begins_alike"]

_PLAIN = (bool, int, float, complex, str, bytes)


class Attributes:
    """The attributes of some things and of what they are made of, as they were when this was made."""

    def __init__(self, *things: Any) -> None:
        """Note them; nothing of the things' own code runs."""
        found = [attributes_of(part) for thing in things for part in parts(thing)]
        self._as_they_were = [(own, dict(own)) for own in found if type(own) is dict]

    def only_opened(self, watch: StateWatch) -> bool:
        """Return whether attributes that were None, or not there, are objects now, and all else is as it was.

        A file, an array or a connection that is opened at the first sample is the same whichever sample that is. A
        number is not: which samples a worker meets is another thing in each pass. `watch` is of the same moment.
        """
        opened = []
        for own, before in self._as_they_were:
            for name in own.keys() | before.keys():
                value, earlier = own.get(name), before.get(name)
                if value is earlier:
                    continue
                if earlier is not None or value is None or isinstance(value, _PLAIN):
                    return False
                opened.append((own, name, value, name in before))
        try:
            for own, name, _, was_there in opened:
                own[name] = None
                if not was_there:
                    del own[name]
            return not watch.look_deep()
        finally:
            for own, name, value, _ in opened:
                own[name] = value


def begins_alike(dataset: Any) -> bool:
    """Return whether a sample comes out the same whichever one was made first, as far as two others show it.

    What is set up at the first sample may depend on it: a mean, an offset. Asked are copies of the process.
    """
    last, states = len(dataset) - 1, random_states()  # of this process: Python seeds its own anew in a copy
    asked = [functools.partial(_sample_after, dataset, first, last // 2, states) for first in ([], [0], [last])]
    found = [ask_a_copy(one) for one in asked]
    return not any(one.failed for one in found) and all(same(found[0].value, one.value) for one in found[1:])


def _sample_after(dataset: Any, first: list[int], index: int, states: RandomStates) -> Any:
    for each in first:
        dataset[each]
    restore_random_states(states)
    return dataset[index]
