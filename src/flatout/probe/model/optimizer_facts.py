"""What is known of an optimizer that made a step, and which of torch's implementations it works with."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from flatout.schema.run import Frame, OptimizerFacts

__all__ = ["optimizer_facts", "parameters_of", "sparse_weights"]


def parameters_of(optimizer: Any) -> Iterator[Any]:
    """Yield the parameters of all groups."""
    for group in optimizer.param_groups:
        yield from group["params"]


def sparse_weights(models: Iterable[Any]) -> frozenset[int]:
    """Return the identities of the tables whose gradients are sparse: no fused optimizer takes these."""
    kinds = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    tables = (one for model in models for one in model.modules() if isinstance(one, kinds))
    return frozenset(id(getattr(one, "weight", None)) for one in tables if getattr(one, "sparse", False))


def _has_fused_adagrad(device: str) -> bool:
    """Return whether this torch has that kernel: on the CPU first, on CUDA only later."""
    try:
        key = {"cpu": "CPU", "cuda": "CUDA"}.get(device, "")
        return bool(key) and torch._C._dispatch_has_kernel_for_dispatch_key("aten::_fused_adagrad_", key)
    except (AttributeError, RuntimeError):
        return False


def optimizer_facts(
    optimizer: Any, place: Frame | None, turns: int = 0, sparse: frozenset[int] = frozenset()
) -> OptimizerFacts:
    """Return what is known of an optimizer that was made at `place`, stepped after others `turns` times.

    `sparse` holds the identities of the tensors whose gradients are sparse.
    """
    kind = type(optimizer)
    from_torch = kind.__module__.startswith("torch.optim")
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    first = next(parameters_of(optimizer), None)
    accelerated = first is not None and first.device.type != "cpu"
    implementation = ""
    if from_torch:
        if group.get("fused"):
            implementation = "fused"
        elif group.get("foreach") or (group.get("foreach") is None and accelerated):
            implementation = "foreach"
        else:
            implementation = "loop"
    known = kind.__name__ in ("Adam", "AdamW", "SGD")
    if kind.__name__ == "Adagrad" and first is not None:
        known = _has_fused_adagrad(first.device.type)
    able = all(id(parameter) not in sparse for parameter in parameters_of(optimizer))
    return OptimizerFacts(
        name=kind.__name__,
        from_torch=from_torch,
        num_tensors=sum(1 for _ in parameters_of(optimizer)),
        implementation=implementation,
        fused_available=from_torch and known and able and "fused" in group and not group.get("differentiable"),
        created_at=place,
        turns=turns,
        has_complex=any(parameter.is_complex() for parameter in parameters_of(optimizer)),
    )
