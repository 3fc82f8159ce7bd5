"""Questions of the edited script: whether a layer computes each row by itself, unwatched, and an index picks rows."""

from collections.abc import Sequence

__all__ = ["BY_ROW", "is_by_row", "is_unwatched", "picks_rows"]

BY_ROW = ("Linear", "ReLU", "GELU", "Tanh", "Sigmoid", "SiLU", "ELU", "LeakyReLU", "LayerNorm")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_by_row(torch: str, layer: str, *, in_sequence: bool) -> str:
    """Return the condition under which what is called `layer` gives each row what it gives for the row alone."""
    if not in_sequence:
        return f"type({layer}) is {torch}.nn.Linear and {is_unwatched(layer)}"
    kinds = ", ".join(f"{torch}.nn.{each}" for each in BY_ROW)
    each = (
        f'type(each) in ({kinds}) and {is_unwatched("each")} and not getattr(each, "inplace", False)'
        f' and len(getattr(each, "normalized_shape", "1")) == 1'
    )
    return f"type({layer}) is {torch}.nn.Sequential and {is_unwatched(layer)} and all({each} for each in {layer})"


def is_unwatched(layer: str) -> str:
    """Return the condition under which nothing but its own `forward` runs when a module is called."""
    hooks = " or ".join(f"{layer}.{each}" for each in _HOOKS)
    return f'not ({hooks} or "forward" in {layer}.__dict__)'


def picks_rows(torch: str, x: str, num_items: int, picked_by: Sequence[str]) -> str:
    """Return the condition under which an index of so many items leaves the last dimension of `x` alone.

    `picked_by`: the items whose values are not in sight. A mask may stand alone; it takes as many dimensions as it has.
    """
    asked = [f"{x}.dim() > {num_items}"]
    for item in picked_by:
        numbers = f"type({item}) is {torch}.Tensor and {item}.dtype is {torch}.int64"
        if num_items == 1:
            numbers = (
                f"type({item}) is {torch}.Tensor and ({item}.dtype is {torch}.int64 or {item}.dtype is {torch}.bool"
            )
            numbers += f" and 0 < {item}.dim() < {x}.dim())"
        asked.append(f"(type({item}) is int or {numbers})")
    return " and ".join(asked)
