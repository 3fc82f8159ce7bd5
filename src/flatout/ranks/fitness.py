"""Why a call of a module cannot be cut, as far as that shows in the module itself."""

from typing import Any

import torch

__all__ = [
    "OF_MODULES",
    "is_compiled",
    "is_of_torch",
    "modes",
    "parameters_of",
    "parts_of",
    "refusal",
    "settings",
    "written_out",
]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
OF_MODULES = frozenset(vars(torch.nn.Module()))
"""Attributes that torch gives every module."""

_SETTINGS = (bool, int, str, type(None))


def written_out(module: Any) -> Any:
    """Return the module that a compiled one was made of, or the module itself."""
    return vars(module).get("_modules", {}).get("_orig_mod", module)


def is_compiled(module: Any, modules: list[Any]) -> bool:
    """Return whether a graph is made of calls of `module` or of one of its parts `modules`."""
    return written_out(module) is not module or any(vars(one).get("_compiled_call_impl") is not None for one in modules)


def modes(modules: list[Any]) -> tuple[bool, ...]:
    """Return which of the modules are in training."""
    return tuple(module.training for module in modules)


def settings(modules: list[Any]) -> tuple[Any, ...]:
    """Return what attributes of modules that are none of torch's own say in plain values: a stage, a switch."""
    own = [module for module in modules if not is_of_torch(module)]
    return tuple(
        (name, value)
        for module in own
        for name, value in vars(module).items()
        if isinstance(value, _SETTINGS) and name not in OF_MODULES
    )


def is_of_torch(module: Any) -> bool:
    """Return whether a module is of a class of torch's own."""
    return type(module).__module__.startswith("torch.")


def parts_of(module: Any) -> list[Any]:
    """Return the module and all that are in it, each once."""
    found: dict[int, Any] = {}
    waiting = [module]
    while waiting:
        one = waiting.pop()
        if id(one) not in found:
            found[id(one)] = one
            waiting += [each for each in one._modules.values() if each is not None]
    return list(found.values())


def parameters_of(modules: list[Any]) -> list[Any]:
    """Return the parameters that modules hold themselves."""
    return [each for one in modules for each in one._parameters.values() if each is not None]


def refusal(module: Any, modules: list[Any]) -> str:
    """Return why calls of `module` are left whole, "" where nothing speaks against a trial; `modules`: its parts."""
    if any(isinstance(one, torch.jit.ScriptModule) for one in modules):
        return "torch.jit has compiled it"
    if torch.nn.modules.module._has_any_global_hook():
        return "hooks are registered for all modules"
    if any(map(torch.nn.parameter.is_lazy, parameters_of(modules))):
        return "its parameters take shape in this call"
    for one in modules:
        held = vars(one)
        for name in _HOOKS:
            hooks = held.get(name)
            if hooks and not all(type(hook).__module__.startswith("torch.nn.utils") for hook in hooks.values()):
                return f"a hook on {type(one).__name__} would see the rows of one rank"
        if held.get("sparse", getattr(type(one), "sparse", False)) is True:
            return f"{type(one).__name__} has sparse gradients"
        if isinstance(one, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
            return f"{type(one).__name__} distributes its batches itself"
    return _of_parameters(modules) or _of_compilation(module, modules)


def _of_parameters(modules: list[Any]) -> str:
    for one in modules:
        for name, parameter in one._parameters.items():
            if parameter is None:
                continue
            if not parameter.is_leaf:
                return f"its parameter {name} is computed from others"
            if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
                return f"a hook on its parameter {name} would see the gradients of one rank's rows"
    return ""


def _of_compilation(module: Any, modules: list[Any]) -> str:
    """Return what a compiled module has in it that all rows decide: inside of its graph no rank asks the others."""
    if not is_compiled(module, modules):
        return ""
    for one in modules:
        name = type(one).__name__
        if one.training and isinstance(one, torch.nn.modules.batchnorm._BatchNorm):
            return f"it is compiled, with {name} inside"
        if one.training and (getattr(one, "p", 0) or 0) and isinstance(one, torch.nn.modules.dropout._DropoutNd):
            return f"it is compiled, with {name} inside"
    return ""
