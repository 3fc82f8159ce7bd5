"""What a training does at this moment: written by each rank, completed by the parent with what the machine does."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["LIVE_FILES", "GpuNow", "LiveNow", "MachineNow", "RankNow"]

LIVE_FILES = "live-*.json"
"""How the files of the ranks are called, in the order's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankNow:
    """One process that trains; what is no total is of the last seconds, `span_s` of them."""

    rank: int = 0
    world_size: int = 1
    pid: int = 0
    steps: int = 0  # since the start
    step_s: Mapping[str, float] = field(default_factory=dict)  # the same by phase, all steps together
    recent_steps: int = 0
    span_s: float = 0.0  # from the beginning of the first of these steps to the end of the last, all between included
    step_ms: float = 0.0  # mean of these steps
    phases_ms: Mapping[str, float] = field(default_factory=dict)  # the same by phase, summing to it
    outside_s: Mapping[str, float] = field(default_factory=dict)  # by phase, what lay between these steps
    samples_per_step: float = 0.0  # 0: not known
    epoch: int = 0  # how many were begun; 0: not known
    batches: int = 0  # of this epoch, so far
    epoch_batches: int = 0  # the length of the loader; 0: not known
    batches_per_step: float = 1.0
    ready: int | None = None  # batches that workers have made and that nobody has taken; None without workers
    most_ready: int = 0
    idle_s: float = 0.0  # since the last step ended
    doing: str = "step"  # "step", "validation", "between epochs": as far as it is known
    note: str = ""  # why nothing more is told

    @property
    def steps_per_s(self) -> float:
        """Return how many steps a second there were, with all that lay between them."""
        return self.recent_steps / self.span_s if self.span_s > 0 else 0.0

    @property
    def epoch_left_s(self) -> float | None:
        """Return the seconds to the end of the epoch at the step's pace, None where its length is not known."""
        if not self.epoch_batches or self.batches > self.epoch_batches or self.step_ms <= 0:
            return None
        return (self.epoch_batches - self.batches) / self.batches_per_step * self.step_ms / 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNow:
    """One NVIDIA device; the share of time in which a kernel ran, not of the device's units."""

    busy: float = 0.0
    memory_bytes: int = 0
    total_bytes: int = 0
    power_w: float = 0.0
    throttled: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineNow:
    """The machine over the last half second; CPU in cores."""

    main_cpu: float = 0.0  # the processes that train
    worker_cpu: float = 0.0  # the others of their tree
    foreign_cpu: float = 0.0  # everything else
    cores: tuple[float, ...] = ()  # busy share of each
    memory_bytes: int = 0  # resident bytes of the process tree
    available_bytes: int = 0  # that may still be taken, of the machine or of the control group
    shm_used_share: float = 0.0
    disk_read_s: float = 0.0  # bytes a second; of the whole machine, as the network
    disk_write_s: float = 0.0
    net_in_s: float = 0.0
    net_out_s: float = 0.0
    gpus: tuple[GpuNow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveNow:
    """One moment of a training and of its machine."""

    script: str
    wall_s: float = 0.0  # since the start
    ranks: tuple[RankNow, ...] = ()
    machine: MachineNow = field(default_factory=MachineNow)
