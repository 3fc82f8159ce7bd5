"""The probes that every process has whose training is followed: the same for a recording and for the live view."""

from collections.abc import Callable

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.seams import Seams
from flatout.probe.loader.loading import LoaderWatch
from flatout.probe.model.losses import Losses
from flatout.probe.model.modules import ModuleWatch
from flatout.probe.model.training_loop import TrainingWatch
from flatout.probe.system.device_waits import CopySink, DeviceWatch

__all__ = ["LightProbes"]


class LightProbes:
    """The log of a training's events, and the probes that record them there."""

    def __init__(self, event_log: EventLog) -> None:
        """Put the probes together; nothing is installed yet."""
        self.event_log = event_log
        self.seams = Seams()
        self.losses = Losses()
        self.modules = ModuleWatch(event_log)
        self.loading = LoaderWatch(event_log)
        self.training = TrainingWatch(event_log, self.modules, self.losses)

    def installers(self, sink: CopySink | None = None, *, everywhere: bool = False) -> list[Callable[[Seams], None]]:
        """Return what installs the probes, one by one; `sink` and `everywhere` are for the copies to devices."""
        devices = DeviceWatch(self.event_log, sink, everywhere=everywhere)
        return [self.training.install, self.modules.install, self.loading.install, devices.install]

    def remove(self) -> None:
        """Take them away again: afterwards each attribute is the object it was before."""
        self.modules.unhook()
        self.training.uninstall()
        self.seams.undo()

    def batch_size(self) -> int | None:
        """Return how many samples a batch has, None where that is not known."""
        sizes = sorted(size for size in self.loading.batch_sizes or self.modules.batch_sizes if size)
        return sizes[len(sizes) // 2] if sizes else None
