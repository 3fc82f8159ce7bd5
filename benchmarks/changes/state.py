"""State of a data set as text: where it lives, how a sample reads it, and the ways in which scripts change it."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class State:
    """One place where a data set keeps something.

    `init`, `top`, `methods` and the changes are lines of Python. A change speaks of `data`, and of `{new}`, an
    expression in which `j` is the number of a row. What is shared between processes cannot be changed while workers
    read it, or the plain loader gives one thing or another.
    """

    name: str
    init: str
    read: str
    changes: dict[str, str]
    top: str = ""
    methods: str = ""
    length: str = "len(self.rows)"
    by_row: bool = True
    once: tuple[str, ...] = ()  # changes that do not go back: what is appended, sorted, cleared
    shared: bool = False
    values: tuple[str, str, str] | None = None  # old, new, new in each epoch
    also: str = "0"  # what is looked at in the end
    arguments: str = ""  # of the loader, of a script that needs them
    names: tuple[str, ...] = field(default=())

    def value(self, which):
        """Return the expression for the old value (0), a new one (1), or one of its own for each epoch (2)."""
        return (self.values or (("j % 10", "99", "20 + epoch") if self.by_row else ("1.0", "0.5", "2.0 + epoch")))[
            which
        ]
