"""A small training under the real probes and a scripted clock: time passes only where the script says so."""

from typing import Self

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.seams import Seams
from flatout.probe.loader.loading import LoaderWatch
from flatout.probe.model.losses import Losses
from flatout.probe.model.modules import ModuleWatch
from flatout.probe.model.training_loop import TrainingWatch
from flatout.schema.phase import STEP_PHASES, Phase

MS = 1_000_000
SAMPLE, FORWARD, LOSS, BACKWARD, OPTIMIZER = 1, 5, 1, 7, 3  # milliseconds
BATCH = 2  # samples
INPUT = SAMPLE * BATCH
STEP = INPUT + FORWARD + LOSS + BACKWARD + OPTIMIZER


class Clock:
    """Stands still but where the script spends time."""

    def __init__(self):
        self.ns = 0

    def __call__(self):
        return self.ns

    def __deepcopy__(self, memo):
        return self

    def spend(self, ms):
        self.ns += round(ms * MS)


class Watch:
    """Everything that follows the steps of a script, attached to this process for the length of a test."""

    def __init__(self, clock=None):
        self.clock = clock or Clock()
        self.steps, self.outside = [], []
        self.event_log = EventLog(self.steps.append, self.outside.append, clock=self.clock)
        self.account, self.tracker = self.event_log.tracker.account, self.event_log.tracker
        self.modules = ModuleWatch(self.event_log)
        self.loading = LoaderWatch(self.event_log)
        self.training = TrainingWatch(self.event_log, self.modules, Losses())
        self.seams = Seams()

    def __enter__(self) -> Self:
        self.training.install(self.seams)
        self.loading.install(self.seams)
        return self

    def __exit__(self, *_):
        self.modules.unhook()
        self.training.uninstall()
        self.seams.undo()

    # -- what was seen ------------------------------------------------------------------------------------------

    def end(self):
        """End the recording and hold it to what every recording must obey."""
        self.event_log.finish()
        for step in self.steps:
            assert sum(step.phases_ns) == step.wall_ns
            assert sum(step.host_parts_ns) == step.phases_ns[STEP_PHASES.index(Phase.HOST)]
            assert min(step.phases_ns) >= 0
        starts = [step.start_ns for step in self.steps]
        assert starts == sorted(starts)
        assert self.rest() >= 0
        return self

    def rest(self):
        """Return the milliseconds that neither steps nor stretches outside them hold: start-up, what is half done."""
        known = sum(step.wall_ns for step in self.steps) + sum(stretch.wall_ns for stretch in self.outside)
        return (self.clock.ns - known) / MS

    def walls(self):
        """Return the milliseconds of every step."""
        return [step.wall_ns / MS for step in self.steps]

    def batches(self):
        return [step.num_batches for step in self.steps]

    def out(self, phase):
        """Return the milliseconds outside the steps in `phase`."""
        return sum(stretch.wall_ns for stretch in self.outside if stretch.phase is phase) / MS

    def phases(self, number):
        """Return the milliseconds of the phases of one step that took any."""
        values = zip(STEP_PHASES, self.steps[number].phases_ns, strict=True)
        return {phase.value: ns / MS for phase, ns in values if ns}

    def training_loaders(self):
        return [facts.is_training for facts in self.loading.describe(self.tracker.passes.trained)]

    # -- what scripts are made of -------------------------------------------------------------------------------

    def model(self, forward=FORWARD, backward=BACKWARD):
        return Model(self.clock, forward, backward)

    def sgd(self, model, ms=OPTIMIZER):
        return SlowSGD(model.parameters(), self.clock, ms)

    def loss(self, model, x):
        value = model(x).mean()
        self.clock.spend(LOSS)
        return value

    def loader(self, batches, **options):
        return DataLoader(Data(self.clock, batches * BATCH), batch_size=BATCH, **options)

    def stream(self, batches, **options):
        return DataLoader(Stream(self.clock, batches * BATCH), batch_size=BATCH, **options)

    def train_on(self, model, optimizer, x):
        self.loss(model, x).backward()
        optimizer.step()
        optimizer.zero_grad()


class Data(Dataset):
    def __init__(self, clock, length):
        self.clock, self.length = clock, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index >= self.length:
            raise IndexError(index)
        self.clock.spend(SAMPLE)
        return torch.full((2,), float(index))


class Stream(IterableDataset):
    def __init__(self, clock, length):
        self.data = Data(clock, length)

    def __iter__(self):
        return (self.data[index] for index in range(len(self.data)))


class _SlowBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, clock, ms):
        ctx.clock, ctx.ms = clock, ms
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        ctx.clock.spend(ctx.ms)
        return gradient, None, None


class Model(nn.Module):
    def __init__(self, clock, forward, backward):
        super().__init__()
        self.linear = nn.Linear(2, 1)
        self.clock, self.times = clock, (forward, backward)

    def forward(self, x):
        self.clock.spend(self.times[0])
        return _SlowBackward.apply(self.linear(x), self.clock, self.times[1])


class SlowSGD(torch.optim.SGD):
    def __init__(self, parameters, clock, ms):
        super().__init__(parameters, lr=1e-4)
        self.clock, self.ms = clock, ms

    def step(self, closure=None):
        self.clock.spend(self.ms)
        return super().step(closure)
