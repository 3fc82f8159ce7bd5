"""A number for all that a data set is made of: equal on ranks whose data sets are equal."""

import hashlib
import pickle
import types
from typing import Any

import torch

from flatout.watch.components import handle_of, is_generator, parts
from flatout.watch.own_generators import access, mark_of

__all__ = ["content_digest", "digest_of_bytes"]


def content_digest(thing: Any) -> int | None:
    """Return the number of a data set with all that its own code reads, None where something in it has no content."""
    try:
        for _ in range(2):  # at the first time pickle leaves a note on classes, which are parts, too
            sink = _Sink()
            _ContentPickler(sink, 5).dump(list(parts(thing)))
    except Exception:  # whatever a class of the script's raises where it is to be written down
        return None
    return digest_of_bytes(sink.hash.digest())


def digest_of_bytes(*contents: bytes) -> int:
    """Return a number of 64 bits, with a sign, that differs where the bytes do."""
    found = hashlib.blake2b(digest_size=8)
    for each in contents:
        found.update(len(each).to_bytes(8, "little"))
        found.update(each)
    return int.from_bytes(found.digest(), "little", signed=True)


class _Sink:
    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=32)

    def write(self, data: Any) -> int:
        self.hash.update(data)
        return memoryview(data).nbytes


class _ContentPickler(pickle.Pickler):
    """Writes what differs between ranks, and of code its name alone; what code holds is among the parts."""

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, types.ModuleType):
            return obj.__name__
        if isinstance(obj, type | types.FunctionType | types.BuiltinFunctionType):
            return f"{obj.__module__}.{obj.__qualname__}"
        if is_generator(obj):
            return mark_of(access(obj)[0]())
        if isinstance(obj, torch.Tensor):  # of which pickle names the memory that it lies in
            flat = obj.detach().contiguous().reshape(-1).view(torch.uint8).cpu()
            return str(obj.dtype), tuple(obj.shape), digest_of_bytes(flat.numpy().tobytes())
        if isinstance(obj, types.MethodType | types.CodeType | property | types.MemberDescriptorType):
            return type(obj).__name__
        if handle_of(obj):
            raise pickle.PicklingError(handle_of(obj))
        return None
