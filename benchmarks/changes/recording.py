"""Records of a script: what it was given, to the last bit, and what it left behind.

A record is a line: a hash of everything (types, values, dtypes, shapes, strides, which parts share memory or are one
object), then the first numbers, for the reader.
"""

import dataclasses
import hashlib
import random
from collections.abc import Mapping

import numpy as np
import torch


class Digest:
    """A hash of a value that also tells which of its parts are one object or share memory."""

    def __init__(self):
        self.hash = hashlib.sha1(usedforsecurity=False)
        self.met = {}  # what was met, to the order in which it was
        self.kept = []  # so that no id is used twice while we look
        self.brief = []

    def add(self, value):
        if isinstance(value, torch.Tensor):
            self._tensor(value)
        elif isinstance(value, np.ndarray):
            self._array(value)
        elif isinstance(value, Mapping):
            self._say(f"map {type(value).__qualname__} {len(value)}", value)
            for key in value:
                self.add(key)
                self.add(value[key])
        elif isinstance(value, (list, tuple)):
            self._say(f"sequence {type(value).__qualname__} {len(value)}", value if isinstance(value, list) else None)
            for item in value:
                self.add(item)
        elif dataclasses.is_dataclass(value) or (hasattr(value, "__dict__") and not callable(value)):
            self._say(f"object {type(value).__qualname__}", value)
            self.add(dict(vars(value)))
        else:
            self._say(f"{type(value).__name__} {value!r}")
            self.brief.append(repr(value)[:40])

    def _say(self, text, same=None):
        self.hash.update(text.encode())
        if same is not None:
            self.kept.append(same)
            self.hash.update(f"#{self.met.setdefault(('object', id(same)), len(self.met))}".encode())

    def _tensor(self, value):
        kind = f"{type(value).__name__} {value.dtype} {tuple(value.shape)} {value.requires_grad} {value.device}"
        self._say(kind, value)
        plain = value.detach().as_subclass(torch.Tensor)
        if plain.layout is torch.strided:
            self._say(f"strides {plain.stride()}")
            if plain.numel():
                self._memory(plain.untyped_storage().data_ptr(), plain.data_ptr())
        else:
            self._say(f"layout {plain.layout}")
            plain = plain.to_dense()
        flat = plain.resolve_conj().resolve_neg().contiguous().reshape(-1)
        self.hash.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
        self.brief.append(f"{kind.split(' ')[1].removeprefix('torch.')}{list(value.shape)} {flat[:3].tolist()}")

    def _array(self, value):
        self._say(f"{type(value).__name__} {value.dtype} {value.shape} {value.strides} {value.flags.writeable}", value)
        root = value
        while isinstance(root.base, np.ndarray):
            root = root.base
        if value.size:
            self._memory(root.ctypes.data, value.ctypes.data)
        if value.dtype.hasobject:
            self.add(value.tolist())
        else:
            self.hash.update(value.tobytes())
        self.brief.append(f"{value.dtype}{list(value.shape)} {value.reshape(-1)[:3].tolist()}")

    def _memory(self, root, start):
        """Tell whether a part lies in memory that another part lies in, and where in it."""
        number, first = self.met.setdefault(("memory", root), (len(self.met), start))
        self._say(f"memory {number} {start - first}")


def digest(value):
    """Return a line that is the same only for values that nothing can tell apart."""
    found = Digest()
    found.add(value)
    return f"{found.hash.hexdigest()[:12]} {' '.join(found.brief)[:110]}"


def streams():
    """Return a line for the state of the three random streams that scripts use."""
    parts = torch.get_rng_state().numpy().tobytes(), repr(random.getstate()), repr(np.random.get_state())
    short = [
        hashlib.sha1(p if isinstance(p, bytes) else p.encode(), usedforsecurity=False).hexdigest()[:6] for p in parts
    ]
    return f"streams torch {short[0]} random {short[1]} numpy {short[2]}"


def seed(number=0):
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)
