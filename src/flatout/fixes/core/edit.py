"""How a fix is written into the user's own code: plain data beside the fix, which `flatout.edits` applies.

In every piece of code, `{name}` stands for the setting of that name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "AnomalyOff",
    "Autocast",
    "CompiledFunctions",
    "CopyArgument",
    "LoaderArgument",
    "ModelLine",
    "OptimizerArgument",
    "OwnDiff",
    "Piece",
    "SwitchLine",
    "Unwritten",
    "WrappedLoader",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderArgument:
    """An argument of the call that makes the training loader; `at_least`: a larger number stays as it is.

    `in_workers`: samples move to other processes, so what draws random numbers is left alone. `of_workers`: it applies
    to loaders with workers only. `restart_s`: seconds for each worker that each pass waits for, where the fix keeps
    from pass to pass (its setting `persistent`) what the written code restarts.
    """

    name: str
    code: str
    at_least: bool = False
    in_workers: bool = False
    of_workers: bool = False
    restart_s: float = 0.0
    needs: tuple[str, ...] = ()  # modules that `code` names


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedLoader:
    """A function that takes the training loader, followed by `arguments`, and returns the one to iterate."""

    function: str
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchLine:
    """A line after the script's imports, or before the first of them.

    `stands_for`: where a call or a name of this kind is given a literal already, that is changed and no line is added.
    `unless`: names whose mention in the code leaves the line out, since the script decides by itself.
    """

    code: str
    stands_for: str = ""
    unless: tuple[str, ...] = ()
    needs: str = "torch"
    first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLine:
    """A line after the statement that makes the trained model; `{model}` is what that is called.

    `unless`: names whose mention leaves it out; they may hold `{model}`. `not_beside`: code, and why the line is not
    written where that is in the source. `no_views`: left out where code beside the model calls `.view`.
    """

    code: str
    unless: tuple[str, ...] = ()
    not_beside: Mapping[str, str] = field(default_factory=dict)
    no_views: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerArgument:
    """The argument `{implementation}=True` of each of torch's optimizers that has it.

    `not_beside`: code, and why `fused=True` is not written where that is in the source.
    """

    kinds: Mapping[str, tuple[str, ...]]  # implementation: classes that have it
    refuses: tuple[str, ...] = ()  # arguments beside which it is left out
    not_beside: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CopyArgument:
    """`non_blocking=True` where a batch of the training loader is copied to a device."""


@dataclass(frozen=True, slots=True)
class AnomalyOff:
    """No request for autograd's anomaly detection."""


@dataclass(frozen=True, slots=True)
class Autocast:
    """bfloat16 autocast around the training calls of the model, and its output in float32."""


@dataclass(frozen=True, slots=True)
class CompiledFunctions:
    """The decorator `@flatout.compiled` on the functions that the setting `functions` names."""


@dataclass(frozen=True, slots=True)
class OwnDiff:
    """The diff that the settings hold; it is written before all other fixes, whole or not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwritten:
    """What cannot be written, and why; `when`: for these settings only; `rest`: the other pieces still can.

    `where_named`: only where the recipe names them itself.
    """

    reason: str
    when: Mapping[str, object] = field(default_factory=dict)
    rest: bool = False
    where_named: bool = False


Piece = (
    LoaderArgument
    | WrappedLoader
    | SwitchLine
    | ModelLine
    | OptimizerArgument
    | CopyArgument
    | AnomalyOff
    | Autocast
    | CompiledFunctions
    | OwnDiff
    | Unwritten
)
