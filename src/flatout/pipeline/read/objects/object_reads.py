"""What a reader of objects is asked, what it answers, and the errors that it says."""

from dataclasses import dataclass
from typing import Protocol

from flatout.errors import BadObject

__all__ = ["ObjectAnswer", "ObjectReader", "ObjectRequest", "not_whole", "refused", "unreachable"]


@dataclass(frozen=True)
class ObjectRequest:
    """A request for an object, or for some of its bytes.

    Attributes:
        url: the object.
        start: the first byte; None for a whole object.
        stop: the byte behind the last one.
        known: the identity of a copy that is there already: the object need not come if it still has it.
    """

    url: str
    start: int | None = None
    stop: int | None = None
    known: str = ""


@dataclass(frozen=True)
class ObjectAnswer:
    """What came of an object.

    Attributes:
        data: its bytes; None where it has the identity that is known.
        identity: what is another one where the object was written again; empty where its store does not say that.
    """

    data: bytes | None
    identity: str


class ObjectReader(Protocol):
    """Reads objects, from many threads at once."""

    def read(self, request: ObjectRequest) -> ObjectAnswer:
        """Return an object, whole.

        Raises:
            BadObject: it is missing, may not be read, or does not come whole.
        """


def unreachable(url: str, error: BaseException, advice: str = "") -> BadObject:
    """Return what to say of an object that could not be read, after all retries."""
    told = str(error).partition("Debug source")[0].split()
    words = f"{type(error).__name__}: {' '.join(told)}"[:500].rstrip(".")
    return BadObject(
        f"{url} could not be read ({words}).",
        "Its sample cannot be made; requests that may succeed later were repeated.",
        advice or "Check the network and the load on the store, or raise its limits.",
    )


def refused(url: str, error: BaseException) -> BadObject:
    """Return what to say of an object that is missing or forbidden."""
    if isinstance(error, FileNotFoundError):
        return BadObject(
            f"{url} is missing.",
            "Its sample cannot be made.",
            "Check the URL, or leave it out of the list.",
        )
    return unreachable(url, error, "Check the credentials, and that they may read it (storage_options=).")


def not_whole(request: ObjectRequest, size: int) -> BadObject:
    """Return what to say of an object of which fewer bytes came than are wanted."""
    wanted = "the whole object" if request.start is None else f"bytes {request.start} to {request.stop}"
    return BadObject(
        f"{request.url} gave {size} bytes for {wanted}.",
        "It was cut off, or is another object than ranges= was made for.",
        "Check the object, and the ranges.",
    )
