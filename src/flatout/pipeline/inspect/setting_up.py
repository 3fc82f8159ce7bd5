"""What a data set sets up for itself when it is first read, told from what it counts or replaces."""

from typing import Any

from flatout.pipeline.inspect.state_watch import StateWatch
from flatout.pipeline.reach import attributes_of, parts

__all__ = ["Attributes"]

_PLAIN = (bool, int, float, complex, str, bytes)


class Attributes:
    """The attributes of a data set and of what it is made of, as they were when this was made."""

    def __init__(self, dataset: Any) -> None:
        """Note them; nothing of the data set's own code runs."""
        found = [attributes_of(part) for part in parts(dataset)]
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
