"""What kind of value code gives that reads a file: whether it can be kept, shared or copied.

A value that is read bit by bit while it is used (a handle, an iterator, an archive, an image that is not loaded) is
LAZY; it may serve where it is used up, and never be kept.
"""

from dataclasses import dataclass
from enum import Enum

__all__ = ["ATOM", "DEEP", "NUMBER", "UNKNOWN", "Value", "ValueKind", "joined"]


class ValueKind(Enum):
    """What a value is, and how somebody gets one of his own."""

    ATOM = "a value that cannot be changed"
    LIST = "a new list of such values"
    TABLE = "a new dictionary or set of such values"
    ARRAY = "a new array"
    MEMBER = "an array of an archive"
    VIEW = "a part of an array or tensor"
    FROZEN = "an array that cannot be written to"
    TENSOR = "a new tensor"
    IMAGE = "an image in memory"
    DEEP = "a new object with others in it"
    NPY = "an array or an archive"
    LAZY = "something that is read while it is used"
    UNKNOWN = "not known"


@dataclass(frozen=True)
class Value:
    """A kind, with what is known besides.

    Attributes:
        kind: what it is.
        items: what its items are: one value for all, or several that are taken apart.
        slots: its items are those of a table, and take no memory of their own.
        numbers: it is made of numbers alone.
        opaque: it may be of any class.
    """

    kind: ValueKind
    items: "tuple[Value, ...]" = ()
    slots: bool = False
    numbers: bool = False
    opaque: bool = False

    @property
    def is_numeric(self) -> bool:
        """Whether it is an array or a tensor, of which arithmetic makes new ones."""
        return self.kind in (
            ValueKind.ARRAY,
            ValueKind.MEMBER,
            ValueKind.VIEW,
            ValueKind.FROZEN,
            ValueKind.TENSOR,
            ValueKind.NPY,
        )

    @property
    def item(self) -> "Value":
        """What one item is."""
        if len(self.items) == 1:
            return self.items[0]
        if self.items:
            return Value(
                ValueKind.ATOM if all(each.kind is ValueKind.ATOM for each in self.items) else ValueKind.DEEP,
                self.items,
            )
        if self.kind in (ValueKind.ATOM, ValueKind.LIST, ValueKind.TABLE):
            return NUMBER if self.numbers else ATOM
        if self.opaque:
            return self
        if self.is_numeric:
            return Value(ValueKind.VIEW)
        return DEEP if self.kind is ValueKind.DEEP else UNKNOWN


NUMBER = Value(ValueKind.ATOM, numbers=True)
ATOM, DEEP, UNKNOWN = Value(ValueKind.ATOM), Value(ValueKind.DEEP), Value(ValueKind.UNKNOWN)

_NEVER = (ValueKind.LAZY, ValueKind.UNKNOWN, ValueKind.NPY)


def joined(one: Value, other: Value) -> Value:
    """Return what a value is that may be either."""
    numbers, opaque = one.numbers and other.numbers, one.opaque or other.opaque
    if one.kind is other.kind:
        items = one.items if one.items == other.items else ()
        return Value(one.kind, items, one.slots and other.slots, numbers, opaque)
    return UNKNOWN if one.kind in _NEVER or other.kind in _NEVER else Value(ValueKind.DEEP, (), False, numbers, opaque)
