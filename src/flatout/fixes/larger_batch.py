"""Put more samples into each batch and raise the learning rate to match: another training, so only on request.

## What it does

The training loader is built with `factor` times the script's batch size, and every learning rate that an optimizer is
given is multiplied by `lr_factor`: by the factor itself for SGD (the linear rule of Goyal et al. 2017,
arXiv:1706.02677), by its square root for Adam and similar optimizers (Malladi et al. 2022, arXiv:2205.10287). 32, 16,
8, 4 and 2 are tried in this order, as long as an epoch keeps ten steps, and the first that is faster is kept. Where one
of them leaves an epoch a last, smaller batch and three quarters of it leaves none (24, 12, 6, 3), that is tried
instead, since compiled modules run such a batch uncompiled. What does not fit into memory costs one trial.

## Why it helps

What a step costs at any batch size (kernel launches, Python, the optimizer) is paid less often, and a device with
room left does more at once. Speed is counted by samples: a step on four times the samples may take four times as long.
Measured on an H200 (torch 2.11, ResNet-18 of 224x224, bfloat16, channels-last, compiled, one batch on the device;
medians of n=6 epochs): 16,700 images/s with 256 in a batch, 17,500 with 384, 17,900 with 512, 18,000 (1.08x) with 768.

## How equal

SEMANTIC: fewer and larger steps lead to other weights, perhaps worse ones. Results are not compared; a trial only
checks that every loss is finite. Only a whole training shows whether the model is still as good.

## When it is wrong

The largest factor that is faster is kept, even where a smaller one would be nearly as fast and train better. Schedules
that set rates of their own (`OneCycleLR`, `CyclicLR`, a rate that the script writes into the optimizer) keep them, and
whatever counts steps (warm-up, a limit of steps) counts larger ones. Left alone: loaders with a batch sampler of the
script's own, several training loaders, and those that one line of the script makes for training and validation.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.bounds import PLACE, within
from flatout.fixes.core.edit import Unwritten
from flatout.fixes.core.fitness import no_loader, training_loaders
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]

_FACTORS = (32, 16, 8, 4, 2)
_MANY = "no line of the script makes the training loader alone"
_FEWEST_STEPS = 10  # that an epoch keeps
_LINEAR = ("SGD",)
_SQUARE_ROOT = ("Adam", "RMSprop", "Adagrad", "Adadelta", "Lion", "LAMB", "Lamb")  # parts of names


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Return the factors to try, the largest first, each with what it does to the learning rate."""
    training = training_loaders(run)
    places = {loader.created_at for loader in training}
    elsewhere = {loader.created_at for loader in run.loaders if not loader.is_training}
    place = next(iter(places), None)
    if len(places) != 1 or place is None or place in elsewhere:
        return Unfit(_MANY if training else no_loader(run))
    if not all(each.batch_size for each in training):
        return Unfit("the training loader has a batch sampler of the script's own, or no batches")
    lengths = [loader.num_batches for loader in training if loader.num_batches]
    ragged = any(loader.num_samples % loader.batch_size for loader in training)  # as it is: no factor changes that
    kinds = [optimizer.name for optimizer in run.optimizers]
    offered = tuple(
        {"factor": factor, "lr_factor": _lr_factor(kinds, factor), "loader": _name(place)}
        for factor in (factor if ragged else _whole(factor, lengths) for factor in _FACTORS)
        if all(length >= _FEWEST_STEPS * factor for length in lengths)
    )
    return offered or Unfit(f"an epoch has {min(lengths)} steps, and would keep less than {_FEWEST_STEPS}")


def _whole(factor: int, lengths: list[int]) -> int:
    """Return `factor`, or three quarters of it if that alone cuts epochs of these lengths into whole batches."""
    less = 3 * factor // 4
    whole = [4 * less == 3 * factor and not any(length % each for length in lengths) for each in (factor, less)]
    return less if whole == [False, True] else factor


def _lr_factor(kinds: list[str], factor: int) -> float:
    """Return the smallest factor among the rules of all optimizers, 1 for those that have no rule."""
    found = [_rule(kind, factor) for kind in kinds]
    return round(min(found, default=1.0), 4)


def _rule(kind: str, factor: int) -> float:
    if any(part in kind for part in _SQUARE_ROOT):
        return math.sqrt(factor)
    return float(factor) if kind in _LINEAR else 1.0


def _name(place: Frame) -> str:
    return f"{place.file.replace(chr(92), '/').rpartition('/')[2]}:{place.line}"


def patch(site: "Site", *, factor: int, lr_factor: float, loader: str) -> None:
    """Build the loader made at `loader`, a file and its line, with `factor` times its batch size."""
    from flatout.probe.core.user_places import caller

    def make_init(original: Any) -> Any:
        def init(made: Any, *args: Any, **kwargs: Any) -> None:
            place = caller(2)
            given = args[1] if len(args) > 1 else kwargs.get("batch_size", 1)
            own = kwargs.get("batch_sampler") is not None or len(args) > 4
            here = place is not None and _name(place) == loader
            if here and (own or not isinstance(given, int)):
                site.stand_back(f"the loader made at {loader} has a batch sampler of its own, or no batches")
            elif here:
                args, kwargs = _enlarged(args, kwargs, given * factor)
                site.step_worth = float(factor)
                site.hit("DataLoader")
            original(made, *args, **kwargs)

        return init

    def make_add(original: Any) -> Any:
        def add(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            added = optimizer.param_groups[-1]
            for key in ("lr", "initial_lr"):
                if added.get(key) is not None:
                    added[key] = added[key] * lr_factor
            site.hit("Optimizer")

        return add

    site.wrap("torch.utils.data.dataloader:DataLoader.__init__", make_init)
    if lr_factor != 1:
        site.wrap("torch.optim.optimizer:Optimizer.add_param_group", make_add)


def _enlarged(args: tuple[Any, ...], kwargs: dict[str, Any], size: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a loader's arguments with another batch size."""
    return ((args[0], size, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "batch_size": size})


FIX = Fix(
    name="larger-batch",
    equivalence=Equivalence.SEMANTIC,
    phases=(Phase.INPUT, Phase.TRANSFER, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.SYNC, Phase.HOST),
    patch=patch,
    bounds={"factor": within(1, 1024), "lr_factor": within(0, 1024), "loader": PLACE},
    choices=choices,
    addresses=("CO013", "ME005"),
    on_request=True,
    edit=(
        Unwritten(
            reason="it is another training: change batch size and learning rate yourself, and compare the results"
        ),
    ),
)
