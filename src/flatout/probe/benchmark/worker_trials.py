"""Numbers of workers, tried on copies of a loader in turns: each as long as the others, the loader's own among them."""

import time
import traceback
from typing import Any

from flatout.machine import usable_cores
from flatout.probe.benchmark.drawn_batches import DrawnBatches, Pacing, draw
from flatout.probe.benchmark.stage_times import without_workers
from flatout.schema.loader_figures import Figure, WorkerSetting

__all__ = ["ROUNDS", "numbers_to_try", "try_workers", "with_workers"]

ROUNDS = 3
"""Turns of each setting."""

_MOST_WORKERS = 16
_WAITS = 0.4  # share of a batch that waits, from which more workers than cores are tried
_MOST_BATCHES = 2000  # of a turn
_LONGER = 2.0  # turns that a slow setting is given more, until each worker has made two batches


def numbers_to_try(own: int, waiting: float, cores: int | None = None) -> list[int]:
    """Return numbers of workers, the loader's own first: none, half the cores, all; more where samples wait."""
    cores = usable_cores() if cores is None else cores
    wanted = [own, 0, max(1, cores // 2), cores]
    if waiting >= _WAITS:
        wanted += [2 * cores, 4 * cores]
    return list(dict.fromkeys(min(_MOST_WORKERS, number) if number != own else own for number in wanted))


def with_workers(loader: Any, number: int) -> Any:
    """Return a copy of `loader` with `number` workers that live for one pass."""
    changed = without_workers(loader)
    vars(changed).update(num_workers=number, pin_memory=loader.pin_memory)
    if number:
        vars(changed).update(prefetch_factor=loader.prefetch_factor or 2, timeout=loader.timeout)
    return changed


def try_workers(loader: Any, numbers: list[int], seconds: float, until_s: float) -> tuple[WorkerSetting, ...]:
    """Try each number for `seconds` a turn, in turns, until the clock says `until_s`; the first is the loader's own."""
    drawn: dict[int, list[DrawnBatches]] = {number: [] for number in numbers}
    trouble: dict[int, str] = {}
    for turn in range(ROUNDS):
        for number in numbers if turn % 2 == 0 else reversed(numbers):
            if number in trouble or (turn and time.perf_counter() + seconds > until_s):
                continue
            try:
                drawn[number].append(_turn(loader, number, seconds))
            except Exception as error:  # a data set that cannot be sent, or memory for so many that is not there
                trouble[number] = f"failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                traceback.clear_frames(error.__traceback__)  # they hold the iterator, and that the workers
    return tuple(_setting(number, drawn[number], number == numbers[0], trouble.get(number, "")) for number in numbers)


def _turn(loader: Any, number: int, seconds: float) -> DrawnBatches:
    """Draw for one turn; workers have gone when it is over."""
    tried, until = with_workers(loader, number), time.perf_counter() + seconds
    pace = Pacing(batches=_MOST_BATCHES, until_s=until, least=2 * number + 1, latest_s=until + _LONGER * seconds)
    return draw(tried, pace, workers=number, known_size=loader.batch_size or 0)


def _setting(number: int, turns: list[DrawnBatches], own: bool, trouble: str) -> WorkerSetting:
    rates = [rate.median for each in turns if (rate := each.samples_s()) is not None]
    firsts = [each.passes[0].first_s for each in turns if each.passes]
    return WorkerSetting(
        workers=number,
        samples_s=None if trouble else Figure.of(rates),
        first_batch_s=Figure.of(firsts),
        own=own,
        trouble=trouble,
    )
