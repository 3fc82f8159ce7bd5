"""Make loaders return pinned memory, for the fixes whose copies need it."""

import sys
import weakref
from typing import Any

from flatout.fixes.core.site import Site

__all__ = ["pin_loaders"]


def pin_loaders(site: Site) -> None:
    """Let every loader hand out pinned memory where there is a CUDA device; what cannot be pinned stays as it is."""
    torch = sys.modules["torch"]
    changed: weakref.WeakSet[Any] = weakref.WeakSet()

    def iterate(original: Any) -> Any:
        def call(loader: Any) -> Any:
            if not loader.pin_memory and torch.cuda.is_available():
                loader.pin_memory = True
                changed.add(loader)
                site.hit("pin_memory")
            return original(loader)

        return call

    def pin(original: Any) -> Any:
        def call(data: Any, device: Any = None) -> Any:
            if isinstance(data, torch.Tensor) and (data.device.type != "cpu" or data.layout != torch.strided):
                return data  # torch would raise, and with it the script
            return original(data, device)

        return call

    def put_back() -> None:
        for loader in changed:
            loader.pin_memory = False
        changed.clear()

    site.wrap("torch.utils.data.dataloader:DataLoader.__iter__", iterate)
    site.wrap("torch.utils.data._utils.pin_memory:pin_memory", pin)
    site.switch(lambda: None, put_back)
