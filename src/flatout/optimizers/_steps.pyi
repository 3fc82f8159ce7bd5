"""Addresses of memory in, steps of optimizers made; what lies there is checked by one_pass.py. False: nothing done."""

from typing import Any

def adam(
    told: list[int],
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool,
    fused: int,
    threads: int,
    /,
) -> bool: ...
def sgd(
    told: list[int],
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    fused: int,
    threads: int,
    /,
) -> bool: ...
def collect(
    parameters: list[Any], states: dict[Any, Any], names: tuple[str, ...], /
) -> tuple[list[Any], ...] | None: ...
def flush(threads: int, /) -> bool: ...
def take_roots(address: int, /) -> None: ...
def look(lists: tuple[list[Any], ...], counters: list[Any], types: tuple[type, type], /) -> list[int] | None: ...
def take_exchange(capsule: object, /) -> bool: ...
