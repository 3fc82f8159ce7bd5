"""A module's float64 weights and buffers as float32 for the time of a call; what the call writes to is written back.

After a call that raises that is left to the caller.
"""

from typing import Any

__all__ = ["NarrowWeights"]

_HOLDERS = ("_parameters", "_buffers")
_OF_RECURRENT = "_flat_weights"  # a list that torch's recurrent layers hold besides


class NarrowWeights:
    """A context in which the modules below one hold float32 copies. Gradients come to the weights as they are."""

    def __init__(self, module: Any, *, compare: bool) -> None:
        """Take a module; `compare`: look for what is written past torch's counters, too."""
        import torch

        self._torch = torch
        self._compare = compare
        self._modules = list(module.modules())
        self._of_buffers = [each.__dict__["_buffers"] for each in self._modules]
        self._copies: dict[int, tuple[Any, Any]] = {}  # by identity: the tensor and its copy
        self._held: list[tuple[dict[str, Any], str, Any]] = []
        self._lists: list[tuple[dict[str, Any], list[Any]]] = []
        self.written = False  # something was written past the counters

    def __enter__(self) -> "NarrowWeights":
        for module in self._modules:
            inner = module.__dict__
            for holder in (inner[name] for name in _HOLDERS):
                wide = [each for each in holder.items() if each[1] is not None and each[1].dtype is self._torch.float64]
                self._held += [(holder, name, tensor) for name, tensor in wide]
            if _OF_RECURRENT in inner:
                self._lists.append((inner, inner[_OF_RECURRENT]))
        for _, _, tensor in self._held:
            self._copy(tensor)  # all before the first is put in place: there may be no memory for them
        lists = [[self._copy(each) for each in weights] for _, weights in self._lists]
        for holder, name, tensor in self._held:
            holder[name] = self._copy(tensor)
        for (inner, _), narrow in zip(self._lists, lists, strict=True):
            inner[_OF_RECURRENT] = narrow
        return self

    def __exit__(self, error: object, *_: object) -> None:
        for holder, name, tensor in self._held:
            if holder.get(name) is self._copies[id(tensor)][1]:  # else the script has put another one there
                holder[name] = tensor
        for inner, weights in self._lists:
            inner[_OF_RECURRENT] = weights
        if error is None:
            self.write_back()

    def write_back(self) -> None:
        """Have the weights and buffers be what the call made of their copies."""
        buffers = {id(tensor) for holder, _, tensor in self._held for each in self._of_buffers if each is holder}
        with self._torch.no_grad():
            for tensor, copy in self._copies.values():
                is_buffer = id(tensor) in buffers  # batch normalization writes past the counters of torch
                hidden = is_buffer or (self._compare and not copy._version)
                hidden = hidden and not self._torch.equal(tensor.float(), copy)
                self.written = self.written or (hidden and not is_buffer)
                if copy._version or hidden:
                    tensor.copy_(copy)

    def _copy(self, tensor: Any) -> Any:
        if tensor is None or tensor.dtype is not self._torch.float64:
            return tensor
        if id(tensor) not in self._copies:
            self._copies[id(tensor)] = tensor, tensor.float()
        return self._copies[id(tensor)][1]
