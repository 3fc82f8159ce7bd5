"""What the script's own handlers of signals raise is for whoever runs, whatever was under way: nobody here keeps it."""

import functools
import signal
import sys
from types import CodeType, FrameType
from typing import Any, TypeVar, overload

__all__ = ["any_but_signals"]


E = TypeVar("E", bound=Exception)


@overload
def any_but_signals() -> tuple[type[Exception], ...]: ...


@overload
def any_but_signals(*kinds: type[E]) -> tuple[type[E], ...]: ...


def any_but_signals(*kinds: type[Exception]) -> tuple[type[Exception], ...]:
    """Return what an `except` is to catch that answers for a stranger's code: every error but those of signals.

    Of these `kinds` alone, if any are given. For the head of the clause, where it sees the error that is looked at:
    `except any_but_signals() as error`. A time limit (`signal.alarm`, and a handler that raises) reaches the script so,
    even while a data set is asked for a proof.
    """
    traceback, codes = sys.exc_info()[2], _handlers()
    while traceback is not None and codes:
        if traceback.tb_frame.f_code in codes and _was_told(traceback.tb_frame):
            return ()
        traceback = traceback.tb_next
    return kinds or (Exception,)


def _was_told(frame: FrameType) -> bool:
    """Return whether a function was called as a handler: with the frame that the signal met."""
    given = list(frame.f_locals.values())
    given += [each for one in given if type(one) is tuple for each in one]
    return any(isinstance(one, FrameType) for one in given)


def _handlers() -> set[CodeType]:
    """Return the code of the functions that answer signals."""
    return {code for each in signal.valid_signals() for code in _codes(signal.getsignal(each))}


def _codes(handler: Any) -> list[CodeType]:
    while isinstance(handler, functools.partial):
        handler = handler.func
    called = next((vars(kind)["__call__"] for kind in type(handler).__mro__ if "__call__" in vars(kind)), None)
    codes = (getattr(each, "__code__", None) for each in (handler, getattr(handler, "__func__", None), called))
    return [code for code in codes if isinstance(code, CodeType)]
