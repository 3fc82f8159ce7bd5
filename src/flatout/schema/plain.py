"""Frozen data to plain JSON values and back, led by the type hints of the dataclasses alone."""

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from enum import Enum

__all__ = ["LARGEST", "from_plain", "to_plain"]

LARGEST = 2**63 - 1
"""No count and no time of ours is larger; sums and products of a few such numbers still are floats."""


def to_plain(value: object) -> object:
    """Return `value` as JSON values: dataclasses and mappings become dicts, tuples lists, enums their value."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: to_plain(getattr(value, name)) for name in _hints(type(value))}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: typing.Any, value: typing.Any) -> typing.Any:
    """Return the value of type `kind` that `to_plain` turned into `value`.

    Raises:
        ValueError: when `value` cannot be of that type; the message names the field.
    """
    origin = typing.get_origin(kind)
    if kind is object or kind is typing.Any:
        return value
    if origin in (types.UnionType, typing.Union):
        return _optional(kind, value)
    if origin is tuple:
        return _sequence(typing.get_args(kind), value)
    if origin is not None and issubclass(origin, Mapping):
        return {str(key): from_plain(typing.get_args(kind)[1], item) for key, item in _expect(dict, value).items()}
    if dataclasses.is_dataclass(kind):
        return _record(kind, _expect(dict, value))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    return _scalar(kind, value)


def _optional(kind: typing.Any, value: typing.Any) -> typing.Any:
    inner = [part for part in typing.get_args(kind) if part is not types.NoneType]
    return None if value is None else from_plain(inner[0], value)


def _sequence(args: tuple[typing.Any, ...], value: typing.Any) -> tuple[typing.Any, ...]:
    items = _expect(list, value)
    if len(args) == 2 and args[1] is Ellipsis:
        if args[0] in (int, float, str):
            return tuple(_scalar(args[0], item) for item in items)
        return tuple(from_plain(args[0], item) for item in items)
    if len(args) != len(items):
        raise ValueError(f"expected {len(args)} values, found {len(items)}")
    return tuple(from_plain(kind, item) for kind, item in zip(args, items, strict=True))


def _record(kind: typing.Any, value: dict[str, typing.Any]) -> typing.Any:
    hints = _hints(kind)
    arguments = {}
    for name, hint in hints.items():
        if name not in value:
            continue
        try:
            arguments[name] = from_plain(hint, value[name])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{kind.__name__}.{name}: {error}") from None
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ValueError(f"{kind.__name__}: {error}") from None


def _scalar(kind: typing.Any, value: typing.Any) -> typing.Any:
    if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
        raise ValueError(f"a number of {len(str(abs(value)))} digits")
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return _expect(kind, value)


def _expect(kind: typing.Any, value: typing.Any) -> typing.Any:
    if not isinstance(value, kind):
        raise ValueError(f"expected {kind.__name__}, found {type(value).__name__}")
    return value


@functools.cache
def _hints(kind: typing.Any) -> dict[str, typing.Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
