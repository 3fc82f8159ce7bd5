"""When a recording has seen enough of a training to be sound."""

from flatout.schema.order import Order

__all__ = ["enough"]


def enough(order: Order, num_steps: int, elapsed_s: float, epochs: int) -> bool:
    """Return whether a recording of `num_steps` over `elapsed_s` seconds is sound enough to stop.

    Short steps need time (drift, gaps between epochs), long steps need number;
    a whole training is recorded to its end. A timed run lasts 5 s, up to 9 s to
    see a second epoch, and longer only until it has 24 steps; a deep run is shorter.
    """
    if order.mode == "whole":
        return False
    if elapsed_s >= order.max_s:
        return True
    if order.steps is not None:
        return num_steps > order.steps
    short, long = (5.0, 9.0) if order.mode == "timed" else (3.5, 6.0)
    wanted = 24 if order.mode == "timed" else 12
    if elapsed_s >= 4 * long:
        return num_steps >= 8
    return num_steps >= wanted and (elapsed_s >= long or (elapsed_s >= short and epochs >= 3))
