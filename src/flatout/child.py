"""Entry point inside the user's process: attaches the probes that the order file asks for.

Called by `inject/sitecustomize.py` right after `torch` was imported. Nothing here may stop the script: what fails is
written beside the parts, and training goes on unobserved.
"""

import contextlib
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["attach", "protect", "protect_safetensors"]


def protect(order_file: str) -> None:
    """Keep the user's files as they are, from the first moment of this process on, if the order asks for it."""
    from flatout.probe.files import keep_files
    from flatout.schema.codec import read_order

    order = read_order(Path(order_file))
    if order.protect_files:
        keep_files(order.folder)


def protect_safetensors(order_file: str) -> None:
    """Set aside what `safetensors.torch.save_file` is about to overwrite: its writer is native code."""
    from flatout.probe.files import keep_files
    from flatout.probe.seams import Hits, Seams
    from flatout.schema.codec import read_order

    order = read_order(Path(order_file))
    if not order.protect_files:
        return

    def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def save_file(tensors: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
            hits.count += 1
            keep_files(order.folder).before_write(filename, truncates=True)
            return original(tensors, filename, *args, **kwargs)

        return save_file

    Seams().wrap("safetensors.torch:save_file", make)


def attach(order_file: str) -> None:
    """Attach to this process as the order in `order_file` says."""
    try:
        from flatout.probe.recorder import start
        from flatout.schema.codec import read_order

        start(read_order(Path(order_file)))
    except Exception:
        with contextlib.suppress(OSError):
            failure = Path(order_file).parent / "parts" / f"failed-{os.getpid()}.txt"
            failure.write_text(traceback.format_exc(), encoding="utf-8")
