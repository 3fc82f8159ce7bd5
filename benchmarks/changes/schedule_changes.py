"""Schedules: what grows harder, larger, stronger or weaker as training goes on."""

import contextlib
import functools
import math
import random
import types

import numpy as np
import torch
from recording import streams
from script_list import decode, features, script
from torch.utils.data import ConcatDataset, DataLoader, Dataset, TensorDataset, default_collate


class Pictures(Dataset):
    def __init__(self, size=16, transform=None):
        self.pictures = features(128, 3 * 16 * 16).view(128, 3, 16, 16)
        self.size = size
        self.transform = transform

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        decode()
        picture = torch.nn.functional.interpolate(self.pictures[index][None], size=(self.size, self.size))[0]
        return (self.transform(picture) if self.transform else picture), index % 10


@script("schedules", attributes=["size"])
def schedule_progressive_resizing(wrap, rec):
    data = Pictures(8)
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for epoch in range(6):
        data.size = (8, 8, 12, 12, 16, 16)[epoch]
        for batch in loader:
            rec(batch)
    rec(streams())


@script("schedules", attributes=["size"])
def schedule_size_changes_every_ten_steps(wrap, rec):
    data, step = Pictures(), 0
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for _ in range(5):
        for batch in loader:
            rec(batch)
            step += 1
            if step % 10 == 0:
                data.size = random.choice([8, 10, 12])
    rec(streams())


class Strength:
    def __init__(self, value):
        self.value = value

    def __call__(self, x):
        return x * self.value + torch.rand(()) * self.value


@script("schedules", attributes=["value"])
def schedule_augmentation_grows_with_the_step(wrap, rec):
    strength = Strength(0.1)
    data, step = Pictures(transform=strength), 0
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for _ in range(4):
        for batch in loader:
            rec(batch)
            step += 1
            strength.value = 0.1 + 0.9 * min(1, step / 30)
    rec(streams())


@script("schedules", attributes=["transform"])
def schedule_augmentation_off_in_the_last_epochs(wrap, rec):
    data = Pictures(transform=lambda x: x.flip(-1) * (1 + torch.rand(())))
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for epoch in range(5):
        if epoch == 3:
            loader.dataset.transform = None
        for batch in loader:
            rec(batch)
    rec(streams())


@script("schedules", attributes=["ratio"])
def schedule_teacher_forcing_ratio(wrap, rec):
    class Sequences(Dataset):
        def __init__(self):
            self.tokens = torch.arange(256 * 12).view(256, 12) % 50
            self.ratio = 1.0

        def __len__(self):
            return 256

        def __getitem__(self, i):
            decode()
            forced = int(self.ratio * 12)
            given = torch.cat([self.tokens[i, :forced], torch.zeros(12 - forced, dtype=torch.long)])
            return given, self.tokens[i]

    data, step = Sequences(), 0
    loader = wrap(DataLoader(data, batch_size=32))
    for _ in range(6):
        for batch in loader:
            rec(batch)
            step += 1
            data.ratio = max(0.0, 1 - math.exp(-3 + step / 20)) if step > 16 else 1.0


@script("schedules", attributes=["epoch"])
def schedule_set_epoch_of_the_data(wrap, rec):
    class Rotating(Dataset):
        epoch = 0

        def __init__(self):
            self.x = features()

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __len__(self):
            return 256

        def __getitem__(self, i):
            decode()
            return self.x[i].roll(self.epoch), i

    data = Rotating()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for epoch in range(6):
        data.set_epoch(epoch // 2)
        for batch in loader:
            rec(batch)


@script("schedules", attributes=["max_length"])
def schedule_sequence_length_warmup(wrap, rec):
    settings = types.SimpleNamespace(max_length=8, pad=0)

    class Text(Dataset):
        def __init__(self, cfg):
            self.cfg, self.ids = cfg, torch.arange(128 * 32).view(128, 32)

        def __len__(self):
            return 128

        def __getitem__(self, i):
            decode()
            return self.ids[i, : self.cfg.max_length]

    loader = wrap(DataLoader(Text(settings), batch_size=8, shuffle=True))
    step = 0
    for _ in range(4):
        for batch in loader:
            rec(batch)
            step += 1
            if step == 40:
                settings.max_length = 16


@script("schedules", attributes=["level"])
def schedule_by_an_observer(wrap, rec):
    """A trainer with hooks: nobody says `data.` in the loop."""

    class Levels(Dataset):
        def __init__(self):
            self.x, self.level = features(), 0

        def __len__(self):
            return 256

        def __getitem__(self, i):
            decode()
            return self.x[i].clamp(-1 - self.level, 1 + self.level)

    class Trainer:
        def __init__(self, data):
            self.loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
            self.hooks = []
            self.step = 0

        def fit(self, epochs):
            for _ in range(epochs):
                for batch in self.loader:
                    rec(batch)
                    self.step += 1
                    for hook in self.hooks:
                        hook(self)

    data = Levels()
    trainer = Trainer(data)
    trainer.hooks.append(functools.partial(lambda data, t: setattr(data, "level", t.step // 24), data))
    trainer.fit(5)


@script("schedules", attributes=["train", "mode"])
def schedule_train_and_eval_mode_over_one_data_set(wrap, rec):
    class Modes(Dataset):
        def __init__(self):
            self.x, self.mode = features(), "train"

        def __len__(self):
            return 256

        def __getitem__(self, i):
            decode()
            return self.x[i] * (2 if self.mode == "train" else 1)

        @contextlib.contextmanager
        def evaluating(self):
            self.mode = "eval"
            yield
            self.mode = "train"

    data = Modes()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for _ in range(4):
        for number, batch in enumerate(loader):
            rec(batch)
            if number == 9:
                with data.evaluating():
                    rec(data[5])
        with data.evaluating():
            for batch in loader:
                rec(batch)


@script("schedules", attributes=["datasets", "scale"])
def schedule_of_one_part_of_a_concatenation(wrap, rec):
    class Part(Dataset):
        def __init__(self, scale):
            self.x, self.scale = features(100), scale

        def __len__(self):
            return 100

        def __getitem__(self, i):
            decode()
            return self.x[i] * self.scale

    both = ConcatDataset([Part(1.0), Part(2.0)])
    loader = wrap(DataLoader(both, batch_size=20, shuffle=True))
    for epoch in range(6):
        for number, batch in enumerate(loader):
            rec(batch)
            if (epoch, number) == (3, 4):
                both.datasets[1].scale = 5.0
        if epoch == 4:
            both.datasets[0] = TensorDataset(torch.ones(100, 64))
            break
    with contextlib.suppress(TypeError):
        for batch in loader:
            rec(batch)


@script("schedules", attributes=["mixing", "alpha"])
def schedule_mixup_strength_in_the_collate_object(wrap, rec):
    class Mixup:
        def __init__(self, alpha):
            self.alpha, self.enabled = alpha, True

        def __call__(self, samples):
            x, y = default_collate(samples)
            if not self.enabled:
                return x, y
            share = float(np.random.beta(self.alpha, self.alpha))
            return x * share + x.flip(0) * (1 - share), y

    mixing = Mixup(0.2)
    loader = wrap(DataLoader(TensorDataset(features(), torch.arange(256)), 16, shuffle=True, collate_fn=mixing))
    for epoch in range(5):
        mixing.alpha, mixing.enabled = 0.2 + epoch / 10, epoch < 3
        for batch in loader:
            rec(batch)
    rec(streams())


@script("schedules", attributes=["gain"])
def schedule_by_a_bound_method_of_a_pipeline(wrap, rec):
    class Pipeline:
        def __init__(self):
            self.gain = 1.0

        def run(self, x):
            return torch.tanh(x * self.gain)

    pipeline = Pipeline()
    data = Pictures(transform=pipeline.run)
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for epoch in range(5):
        batches = iter(loader)
        pipeline.gain = 1.0 + (epoch >= 3)
        for batch in batches:
            rec(batch)
