"""What a process says of its machine and software."""

import os
import platform

import torch

from flatout.machine import usable_cores
from flatout.probe.core import environment
from flatout.probe.core.environment import describe_environment, describe_memory


def test_what_is_said_is_that_of_this_process(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    found = describe_environment()
    assert found.python == platform.python_version()
    assert found.torch == torch.__version__
    assert found.num_cpus == usable_cores()
    assert found.torch_threads == torch.get_num_threads()
    assert found.memory_bytes > 2**28
    assert found.variables["OMP_NUM_THREADS"] == "3"
    assert "SECRET_TOKEN" not in found.variables
    assert found.start_method in ("fork", "spawn", "forkserver")


def test_a_device_that_the_script_does_not_use_is_not_initialized():
    before = torch.cuda.is_initialized()
    found = describe_environment()
    assert torch.cuda.is_initialized() == before
    if not before:
        assert (found.device_kind, found.num_devices) == ("cpu", 0)
        assert describe_memory() is None


def test_a_system_that_does_not_tell_its_memory_has_none(monkeypatch):
    def fail(name):
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "sysconf", fail)
    assert environment._memory_bytes() == 0


def test_a_device_in_use_is_described(monkeypatch):
    properties = type("Properties", (), {"total_memory": 80})()
    for name, value in {
        "is_available": True,
        "is_initialized": True,
        "get_device_name": "H200",
        "device_count": 4,
        "current_device": 0,
        "get_device_properties": properties,
        "memory_stats": {"num_alloc_retries": 2, "allocated_bytes.all.peak": 30, "reserved_bytes.all.peak": 40},
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    found, memory = describe_environment(), describe_memory()
    assert (found.device_kind, found.device, found.num_devices) == ("cuda", "H200", 4)
    assert (memory.retries, memory.total_bytes, memory.allocated_bytes, memory.reserved_bytes) == (2, 80, 30, 40)
