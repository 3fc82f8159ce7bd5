"""What is looked at when the compared steps are over and the training may be disturbed: checkpoints, whole epochs."""

import io
import random
import time
import zlib
from collections.abc import Iterable
from typing import Any

import torch

__all__ = ["describe_checkpoint", "dry_epoch"]

_MOST_BYTES = 512 * 2**20  # a larger checkpoint is described as it is, not written and read again
_DRY_S = 2.0
_FLAGS = (bool, int, str, type(None))


def describe_checkpoint(modules: Iterable[Any], optimizers: Iterable[Any]) -> dict[str, Any]:
    """Return what a checkpoint of the training would hold: keys, types, shapes, strides, the optimizers' flags.

    It goes through `torch.save` as the script's own checkpoints do.
    """
    body: dict[str, Any] = {}
    held = list(modules)
    for number, module in enumerate(held):
        for key, value in _saved(module.state_dict()).items():
            body[f"{type(module).__name__}.{number}.{key}"] = _form(value)
    for number, optimizer in enumerate(optimizers):
        saved = _saved(optimizer.state_dict())
        for place, group in enumerate(saved["param_groups"]):
            flags = {name: value for name, value in group.items() if isinstance(value, _FLAGS) and name != "params"}
            body[f"optimizer {number}, group {place}"] = {**flags, "num_params": len(group["params"])}
        for place, state in saved["state"].items():
            if isinstance(state, dict):
                body[f"optimizer {number}, state {place}"] = {name: _form(value) for name, value in state.items()}
    return body


def _saved(state: Any) -> Any:
    """Return a state as it comes back from a checkpoint."""
    if sum(value.nbytes for value in _tensors(state)) > _MOST_BYTES:
        return state
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, map_location="cpu", weights_only=False)


def _tensors(state: Any) -> Iterable[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, dict):
        for value in state.values():
            yield from _tensors(value)


def _form(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return [str(value.dtype).removeprefix("torch."), list(value.shape), list(value.stride())]
    return type(value).__name__


def dry_epoch(loader: Any, seed: int) -> dict[str, Any] | None:
    """Return how many batches and samples an epoch of `loader` has and a fingerprint of its indices, in order.

    No sample is fetched; random numbers start from `seed`. None for loaders without indices or with too many.
    """
    sampler = getattr(loader, "batch_sampler", None)
    if sampler is None or isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return None
    torch.manual_seed(seed)
    random.seed(seed)
    for one in (loader, sampler, getattr(sampler, "sampler", None)):
        generator = getattr(one, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(seed)
    batches = samples = found = 0
    until = time.monotonic() + _DRY_S
    for indices in sampler:
        batches += 1
        samples += len(indices)
        found = zlib.crc32(repr(list(indices)).encode(), found)
        if time.monotonic() > until:
            return None
    return {"batches": batches, "samples": samples, "indices": f"{found:08x}"}
