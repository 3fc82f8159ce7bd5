"""What became of a training on several ranks, in words: what was cut by rows, and what was left whole and why."""

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["ranks_in_words"]


def ranks_in_words(accounts: Sequence[Mapping[str, Any]], *, size: int) -> list[str]:
    """Return the sentences of a training's end, by the account of the lowest rank of this machine."""
    stopped = [account for account in accounts if account.get("stopped")]
    if stopped:
        return [f"stopped: {stopped[0]['stopped']}"]
    if not accounts:
        return [f"no rank of {size} has told what it did: the script has not imported torch, or was ended"]
    account = accounts[0]
    if account.get("own"):
        return [f"{size} ranks: the script distributes itself, and nothing was done to it"]
    found = []
    for name, module in account["modules"].items():
        found += _of_module(name, module)
    if not account["modules"]:
        found.append("no module with parameters was called: every rank has computed everything")
    found += _sharded(account)
    found += map(_of_input, account.get("inputs", ()))
    found.append(_costs(account, size))
    return found


def _of_module(name: str, module: Mapping[str, Any]) -> list[str]:
    """Return what became of the calls of one kind of module."""
    found = []
    if module["cut"]:
        rows = " + ".join(map(str, module["rows"][:4])) + (" + ..." if len(module["rows"]) > 4 else "")
        found.append(f"{name}: {_calls(module['cut'])} by rows ({rows} of {sum(module['rows'])} in the first)")
    if module["few"]:
        found.append(f"{name}: {_calls(module['few'])} whole on every rank: fewer rows than ranks")
    for reason, number in module["whole"].items():
        found.append(f"{name}: {_calls(number)} whole on every rank: {reason}")
    return found


def _sharded(account: Mapping[str, Any]) -> list[str]:
    """Return what each rank has kept of parameters, gradients and optimizer state."""
    found = []
    memory = account.get("sharded")
    if memory:
        own, whole, together = (f"{memory[name] / 1e6:,.2f} MB" for name in ("own", "whole", "together"))
        found.append(
            f"parameters, gradients and optimizer state: {own} on this rank, of {whole} in one process; of the"
            f" parameters at most {together} were whole at a time"
        )
    reasons = account.get("unsharded", ())
    found += [f"parameters stayed whole on every rank: {reason}" for reason in reasons]
    if account.get("shard") and not found:
        found.append("nothing was shared out: no optimizer of torch's steps a parameter of 1,024 values or more")
    return found


def _of_input(one: Mapping[str, Any]) -> str:
    """Return what became of the batches of one loader without workers."""
    where = f"loader of {one['name']}" + (f" ({one['place']})" if one["place"] else "")
    why = one["reason"] or one["hint"]
    why = why if why.startswith(one["name"]) else f"{one['name']} {why}" if why else ""
    if not one["divided"]:
        return f"{where}: made by every rank" + (f": {why}" if why else "")
    made = f"{where}: {one['divided']:,} of {one['batches']:,} batches divided among the ranks"
    return f"{made}; later ones made by every rank: {why}" if one["reason"] else made + (f"; {why}" if why else "")


def _costs(account: Mapping[str, Any], size: int) -> str:
    seconds = account.get("seconds", {})
    proof = f"; {seconds['proof']:.1f} s to prove it on copies" if seconds.get("proof") else ""
    counts, inputs = account.get("counts", {}), account.get("inputs", ())
    each = f"made {size} times, once by each rank"
    shared = sum(one["shared"] for one in inputs)
    if shared:
        alone = sum(one["samples"] for one in inputs) - shared
        text = f"{shared:,} samples were made once, divided among the ranks, and {alone:,} {each}"
        return text + (", those of workers once" if counts.get("divided") else "") + proof
    if not counts.get("divided"):
        return f"the input was {each}{proof}"
    if not counts.get("alone"):
        return f"the input was made once, by workers that the ranks have divided among them{proof}"
    return f"the input of loaders with workers was made once, that of others {each}{proof}"


def _calls(number: int) -> str:
    return f"{number:,} call{'s' if number != 1 else ''}"
