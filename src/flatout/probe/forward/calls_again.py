"""Calls of the user's functions that one step makes again: given the same as before in this step, returning the same.

Neighbours of points that each layer looks for, a table that each head makes: they are made of what is new in each
step, so that they are no constants of the training. Tensors are the same where they see the same memory in the same way
and were not written to in between; what is returned is compared by its contents.
"""

import os
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch

from flatout.probe.forward.call_contents import CallContents, given_to
from flatout.schema.run import Frame, RepeatedCall

__all__ = ["CallsAgain"]

_MOST_KEYS = 256
_MOST_BYTES = 2**28  # of all tensors that are held, so that no others take their places in memory
_LEAST_NUMBERS = 16


@dataclass(slots=True)
class _Function:
    """The calls of one function in one step."""

    places: dict[tuple[str, int, str], int] = field(default_factory=dict)
    returned: dict[object, object] = field(default_factory=dict)
    calls: int = 0
    again: int = 0
    numbers: int = 0
    left: bool = False


class CallsAgain:
    """Compares the calls of one step with each other."""

    def __init__(self) -> None:
        """Nothing was called yet."""
        self._functions: dict[CodeType, _Function] = {}
        self._held: list[torch.Tensor] = []
        self._num_bytes = 0

    def given(self, frame: FrameType, place: tuple[str, int, str]) -> object | None:
        """Take a call that begins; return the key of what it is given, None where that may be another thing each time.

        `place`: file, line and function that it is called from.
        """
        function = self._functions.setdefault(frame.f_code, _Function())
        function.calls += 1
        function.places[place] = function.places.get(place, 0) + 1
        key, tensors = (None, []) if function.left else given_to(frame, of_memory)
        self._num_bytes += sum(each.nbytes for each in tensors)
        if key is None or self._num_bytes > _MOST_BYTES or len(function.returned) >= _MOST_KEYS:
            function.left = True
            return None
        self._held += tensors
        return key

    def returned(self, code: CodeType, key: object | None, value: Any) -> None:
        """Take what the call returned."""
        function = self._functions[code]
        if key is None or function.left:
            return
        contents = CallContents()
        try:
            digest = contents.at(value)
        except Exception:  # values of any kind
            function.left = True
            return
        self._held += [each for each in contents.values if isinstance(each, torch.Tensor)]
        if contents.numbers < _LEAST_NUMBERS:
            return
        function.numbers = max(function.numbers, contents.numbers)
        if key not in function.returned:
            function.returned[key] = digest
        elif function.returned[key] == digest:
            function.again += 1
        else:
            function.left = True

    def end(self) -> None:
        """The step is over: hold nothing any more."""
        self._held.clear()
        for function in self._functions.values():
            function.returned.clear()

    def facts(self) -> tuple[RepeatedCall, ...]:
        """Return the functions that were called again, each with the line that calls it most."""
        return tuple(
            RepeatedCall(
                places=tuple(Frame(*place) for place in sorted(one.places, key=lambda place: -one.places[place])),
                function=code.co_qualname,
                file=os.path.abspath(code.co_filename),
                calls=one.calls,
                again=one.again,
                numbers=one.numbers,
            )
            for code, one in self._functions.items()
            if one.again and not one.left and all(place[0] for place in one.places)
        )


def of_memory(tensor: torch.Tensor) -> object:
    """Return what tensors have in common that see the same numbers in the same way."""
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor._version
