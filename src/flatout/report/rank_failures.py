"""Why a training on several ranks has ended on a machine that did not want it to, in words."""

import signal

from flatout.schema.ranks import FailureKind, RankFailure

__all__ = ["failure_in_words"]

_WHY = {
    signal.SIGKILL: "the kernel does so when memory runs out (see its log: dmesg), or somebody did",
    signal.SIGBUS: "often there is no room left in /dev/shm",
    signal.SIGSEGV: "native code has gone wrong",
    signal.SIGABRT: "native code has given up",
}
_SIGNALS = {int(one): one.name for one in signal.Signals}


def failure_in_words(failure: RankFailure) -> str:
    """Return one sentence, with the rank and the machine as far as they are known."""
    where = f" on {failure.host}" if failure.host else ""
    if failure.kind is FailureKind.UNREACHABLE:
        return f"{failure.host} cannot be reached any more: the training has ended here"
    if failure.kind is FailureKind.GONE:
        return f"flatout has ended{where} without a word (was it killed?): the training has ended here, too"
    if failure.kind is FailureKind.SIGNAL:
        return f"flatout was ended{where} by {_name(-failure.code)}: the training has ended here, too"
    if failure.code >= 0:
        return f"rank {failure.rank}{where} has failed with exit code {failure.code}: flatout says why there"
    why = _WHY.get(signal.Signals(-failure.code)) if -failure.code in _SIGNALS else None
    return f"rank {failure.rank}{where} was killed by {_name(-failure.code)}" + (f": {why}" if why else "")


def _name(number: int) -> str:
    return _SIGNALS.get(number, f"signal {number}")
