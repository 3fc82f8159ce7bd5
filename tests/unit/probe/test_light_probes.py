"""The probes that every followed training has, put in and taken away together."""

import torch
from torch import nn
from torch.utils.data import DataLoader

from flatout.probe.core.event_log import EventLog
from flatout.probe.light_probes import LightProbes


def light():
    return LightProbes(EventLog(lambda step: None, lambda stretch: None))


def test_they_see_a_training_and_leave_every_attribute_as_it_was():
    before = {name: getattr(torch.Tensor, name) for name in ("backward", "to", "item")}
    walks = DataLoader.__iter__
    probes = light()
    for install in probes.installers():
        install(probes.seams)
    model = nn.Linear(2, 1)
    for (x,) in DataLoader(torch.utils.data.TensorDataset(torch.ones(48, 2)), batch_size=4):
        model(x).mean().backward()
    probes.event_log.finish()
    assert len(probes.losses.values()) == 12
    assert probes.batch_size() == 4
    assert probes.event_log.tracker.num_steps >= 2  # from the eighth on backward() ends a step
    probes.remove()
    assert {name: getattr(torch.Tensor, name) for name in before} == before
    assert DataLoader.__iter__ is walks


def test_the_size_of_a_batch_is_the_middle_one_of_the_loader_or_else_of_the_model():
    probes = light()
    assert probes.batch_size() is None
    probes.modules.batch_sizes += [8]
    assert probes.batch_size() == 8
    probes.loading.batch_sizes += [4, 2, 4, 0]
    assert probes.batch_size() == 4
