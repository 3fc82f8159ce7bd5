"""What the child can say of its machine and software."""

import multiprocessing
import os
import platform

import torch

from flatout.machine import processor_name, usable_cores
from flatout.schema.run import DeviceMemory, Environment

__all__ = ["describe_environment", "describe_memory"]

_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "KMP_AFFINITY",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
    "LD_PRELOAD",
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MALLOC_TRIM_THRESHOLD_",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_LOGS",
    "WORLD_SIZE",
    "LOCAL_RANK",
)


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0


def describe_environment() -> Environment:
    """Return the environment as the script sees it now; initializes no device that the script has not."""
    kind, device, count = "cpu", processor_name(), 0
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        kind, device, count = "cuda", torch.cuda.get_device_name(), torch.cuda.device_count()
    return Environment(
        device=device,
        device_kind=kind,
        num_devices=count,
        num_cpus=usable_cores(),
        cpu=processor_name(),
        memory_bytes=_memory_bytes(),
        platform=platform.platform(),
        python=platform.python_version(),
        torch=torch.__version__,
        torch_threads=torch.get_num_threads(),
        start_method=multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0],
        variables={name: os.environ[name] for name in _VARIABLES if name in os.environ},
    )


def describe_memory() -> DeviceMemory | None:
    """Return what the allocator of CUDA memory says of the device in use; None where the script uses none."""
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return None
    said = torch.cuda.memory_stats()
    return DeviceMemory(
        retries=int(said.get("num_alloc_retries", 0)),
        total_bytes=int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory),
        allocated_bytes=int(said.get("allocated_bytes.all.peak", 0)),
        reserved_bytes=int(said.get("reserved_bytes.all.peak", 0)),
    )
