"""What is kept of a loader, or why nothing is, of any loader that `compile_loader` may have handed back."""

from typing import Any

from torch.utils.data import DataLoader

from flatout.pipeline.inspect.determinism import replaced
from flatout.pipeline.serve.compiled_loader import CompiledLoader, clashes

__all__ = ["explain"]


def explain(loader: Any) -> str:
    """Return one line on what is kept of `loader`, or why it is left as it is; a loader is asked nothing but its class.

    `loader` is what `flatout.compile_loader` returned: a compiled loader, or the script's own where its class walks in
    a way of its own. Of a loader that was never compiled it says that, too.
    """
    kind = type(loader)
    if issubclass(kind, CompiledLoader):
        return CompiledLoader.explain(loader)
    if not issubclass(kind, DataLoader):
        return f"left as it is: {kind.__name__} is not a torch.utils.data.DataLoader"
    own = replaced(kind)
    if own:
        return f"left as it is: {kind.__name__} iterates in its own way ({', '.join(own)})"
    taken = clashes(loader)
    if taken:
        return f"left as it is: {kind.__name__} has attributes that a compiled loader needs ({', '.join(taken)})"
    return f"left as it is: {kind.__name__} was not compiled; take what flatout.compile_loader(loader) returns"
