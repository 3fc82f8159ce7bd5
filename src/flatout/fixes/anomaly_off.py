"""Turn off autograd's anomaly detection, its search for NaN in the backward pass.

## What it does

`set_detect_anomaly(True)` and `detect_anomaly()` have no effect. Opt-in: somebody who is looking for a NaN needs them.

## Why it helps

With anomaly detection on, every operation records its Python stack and every gradient is searched for NaN. Without it,
two scripts of `benchmarks/planted` train 2.7x (`pendulum_ode`) and 3.9x (`river_flow`) as fast (changed by hand;
medians of n=3 pairs of runs, 2 cores of an AMD EPYC, torch 2.13; `python benchmarks/planted.py`).

## How equal

BITWISE, as long as no NaN occurs: with anomaly detection on, the training would have ended there with an error.

## When it is wrong

While a NaN is being looked for. A script that catches the error and goes on would no longer see it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.edit import AnomalyOff
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where anomaly detection was found to be on."""
    found = any(model.anomaly_steps for model in run.models)
    return ({},) if found else Unfit("anomaly detection is off")


def patch(site: "Site") -> None:
    """Ignore requests for anomaly detection while the fix is switched on."""

    def make(original: Any) -> Any:
        def call(enabled: bool, check_nan: bool = True) -> None:
            if enabled:
                site.hit("set_anomaly_enabled")
            elif not site.stood_back:
                site.stand_back("the script asks for no anomaly detection")
            original(False, check_nan)

        return call

    site.wrap("torch:set_anomaly_enabled", make)  # which both the function and the context manager call


FIX = Fix(
    name="anomaly-off",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.FORWARD, Phase.BACKWARD),
    patch=patch,
    choices=choices,
    addresses=("CO003",),
    on_request=True,
    edit=(AnomalyOff(),),
)
