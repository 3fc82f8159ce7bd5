"""Settings of torch.load: those under which a file gives the same each time, and runs nobody's code."""

import functools
import os
import sys
from collections.abc import Mapping
from typing import Any

from torch import serialization

from flatout.kept.call_key import unusual_moment

try:
    from torch.utils.serialization import config as _config
except ImportError:  # before torch 2.6
    _config = None  # type: ignore[assignment]

__all__ = ["load_settings"]

_TRUE = ("1", "y", "yes", "true")


def load_settings(given: Mapping[str, Any]) -> tuple[object, ...] | None:
    """Return what `torch.load` depends on besides its arguments; None where it may run code, or is watched."""
    try:
        return None if unusual_moment() or not _is_weights_only(given) else _settings()
    except AttributeError:  # another torch
        return None


def _settings() -> tuple[object, ...] | None:
    config = getattr(_config, "load", None)
    if serialization._serialization_tls.skip_data or getattr(config, "mmap", False):
        return None
    safe, places = serialization.get_safe_globals(), serialization._package_registry
    if not all(map(_is_torchs, safe)) or not all(map(_is_loader_of_torchs, places)):
        return None
    settings = (serialization.get_default_load_endianness(), getattr(config, "calculate_storage_offsets", None))
    return *settings, frozenset(map(id, safe)), len(places)


def _is_weights_only(given: Mapping[str, Any]) -> bool:
    """Return whether a file of this call gives tensors and plain values alone."""
    asked = given.get("weights_only")
    if asked is not None:
        return asked is True
    forced_off = os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0").lower() in _TRUE
    return bool(serialization._default_to_weights_only(None)) and not forced_off


def _is_torchs(known: Any) -> bool:
    """Return whether something that files may name is torch's own."""
    module, name = getattr(known, "__module__", None) or "", getattr(known, "__qualname__", None) or ""
    return module.startswith("torch.") and getattr(sys.modules.get(module), name, None) is known


def _is_loader_of_torchs(entry: Any) -> bool:
    functions = (each.func if isinstance(each, functools.partial) else each for each in entry[1:])
    return all(getattr(each, "__globals__", None) is vars(serialization) for each in functions)
