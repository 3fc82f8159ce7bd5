"""Whether a recipe is used where it was proven: the same script, software, machine and data."""

import os
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from flatout.engine.process.target import Target, script_digest
from flatout.errors import UsageError
from flatout.machine import processor_name, usable_cores
from flatout.schema.recipe import Recipe

__all__ = ["Here", "here", "require_same_script", "warnings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """Where a recipe is to be used, as far as it is known; what is empty or 0 is not known, and warns of nothing."""

    digest: str = ""
    python: str = ""
    torch: str = ""
    devices: tuple[str, ...] = ()  # every processor and accelerator that the script could use
    num_cpus: int = 0
    world_size: int = 0
    samples: Mapping[str, Sequence[int]] = field(default_factory=dict)  # data set: sizes that were walked


def here(target: Target) -> Here:
    """Return what can be said before the script runs, without importing torch."""
    ours = _is_ours(target.command[0])
    return Here(
        digest=script_digest(target),
        python=platform.python_version() if ours else "",
        torch=_torch_version() if ours else "",
        devices=_devices(),
        num_cpus=usable_cores(),
    )


def warnings(recipe: Recipe, target: Target, facts: Here) -> list[str]:
    """Return one sentence for each way in which `target`, as `facts` say, differs from where `recipe` was proven."""
    proof, found = recipe.proof, []
    if proof.script_digest and facts.digest and proof.script_digest != facts.digest:
        found.append(f"{target.name} has changed since the recipe was proven")
    for what, proven, now in (
        ("Python", proof.python, facts.python),
        ("torch", proof.torch.partition("+")[0], facts.torch.partition("+")[0]),
    ):
        if proven and now and proven != now:
            found.append(f"proven with {what} {proven}, this is {now}")
    if proof.device not in ("", "cpu") and facts.devices and proof.device not in facts.devices:
        found.append(f"proven on {proof.device}, this is {facts.devices[-1]}")
    for what, before, after in (
        ("CPU cores", proof.num_cpus, facts.num_cpus),
        ("processes", proof.world_size, facts.world_size),
    ):
        if before and after and before != after:
            found.append(f"proven with {before} {what}, here are {after}")
    for name, size in proof.samples.items():
        sizes = facts.samples.get(name, ())
        if sizes and size not in sizes:
            found.append(f"proven with {size} samples in {name}, here are {max(sizes)}")
    return found


def require_same_script(recipe: Recipe, path: Path, target: Target) -> None:
    """Refuse a recipe of another script; one of the same content under another name is the same script.

    Raises:
        UsageError: neither name nor content is that of the script the recipe was proven for.
    """
    same_name = Path(recipe.script).name == Path(target.name).name
    digest = script_digest(target)
    if not same_name and not (digest and digest == recipe.proof.script_digest):
        raise UsageError(
            f"{path} was proven for {recipe.script}, not for {target.name}.",
            "A fix that is faster with equal results there may be neither here.",
            f"Tune this script: flatout tune {target.name}. If it was renamed, change `script` in {path}.",
        )


def _is_ours(command: str) -> bool:
    """Return whether `command` runs in the environment that flatout itself runs in: then it finds the same torch."""
    found = shutil.which(command)
    return found is not None and Path(found).absolute().parent == Path(sys.executable).absolute().parent


def _torch_version() -> str:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def _devices() -> tuple[str, ...]:
    """Return the names of the processor and of the accelerators, as torch calls them."""
    return (processor_name(), *_gpus())


def _gpus() -> tuple[str, ...]:
    """Return the names of the NVIDIA GPUs; none where there is no driver, or where they are hidden from the script."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1"):
        return ()
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return tuple(str(pynvml.nvmlDeviceGetName(handle)) for handle in handles)
    except pynvml.NVMLError:
        return ()
