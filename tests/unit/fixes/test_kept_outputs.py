"""kept-outputs in a training with a frozen encoder or a teacher: the same losses and weights to the last bit."""

import pytest
import torch
from tests.unit.fixes.training import same_bits, under
from tests.unit.kept.test_kept_module import Encoder, images
from torch import nn

from flatout.fixes.kept_outputs import FIX, choices
from flatout.kept import kept_module
from flatout.rules.core.example import example
from flatout.schema.run import Causes, FrozenCalls, ModelFacts, Planned


@pytest.fixture(autouse=True)
def whatever_a_call_takes(monkeypatch):
    """On a busy machine telling rows apart takes another part of a call each time."""
    monkeypatch.setattr(kept_module, "_WORTH", 1e9)


ENCODER = FrozenCalls(module="Encoder", calls=4, steps=4, seconds=1.0)


def recorded(*found, **named):
    return example(step_ms=10, forward=8, causes=Causes(frozen_calls=found), **named).run


def test_it_is_offered_for_the_modules_of_the_finding():
    assert choices(recorded(ENCODER, ENCODER)) == ({"modules": "Encoder"},)
    assert FIX.bounds["modules"].holds("Encoder, Teacher")
    assert not FIX.bounds["modules"].holds("Encoder()")
    assert "no module" in FIX.unfit(recorded())
    assert "one pass" in FIX.unfit(recorded(ENCODER, planned=Planned(passes=1)))
    assert "compiled" in FIX.unfit(recorded(ENCODER, models=(ModelFacts(compiled=True),)))


class Head(nn.Module):
    """A head over an encoder that stands inside of the model."""

    def __init__(self, inside):
        super().__init__()
        self.encoder = Encoder() if inside else None
        self.last = nn.Linear(24, 3)

    def forward(self, x):
        return self.last(self.encoder(x) if self.encoder is not None else x)


def train(inside, epochs=4, shuffle=True):
    data = images(48)
    model, teacher = Head(inside), Encoder()
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    generator = torch.Generator().manual_seed(5)
    for _ in range(epochs):
        model.train()
        order = torch.randperm(48, generator=generator) if shuffle else torch.arange(48)
        for rows in order.split(8):
            batch = data[rows]
            outputs = model(batch if inside else teacher(batch))
            loss = outputs.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            losses.append(model(data[:8] if inside else teacher(data[:8])).sum().item())
    return losses, model.state_dict()


@pytest.mark.slow
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_training_is_the_same_to_the_last_bit(inside, shuffle):
    plain = train(inside, shuffle=shuffle)
    with under("kept-outputs", modules="Encoder") as process:
        ours = train(inside, shuffle=shuffle)
        hits, told = dict(process.site.hits), process.site.stood_back
        assert not process.site.failure
    assert same_bits(ours, plain)
    assert hits.get("Encoder", 0) >= 6, told


@pytest.mark.slow
def test_a_teacher_that_follows_the_model_is_called_each_time():
    data, teacher = images(8), Encoder()

    def follow():
        torch.manual_seed(0)
        student, found = Encoder().requires_grad_(True), []
        teacher.load_state_dict(Encoder(3).state_dict())
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        for _ in range(14):
            with torch.no_grad():
                wanted = teacher(data)
            loss = (student(data) - wanted).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for mean, one in zip(teacher.parameters(), student.parameters(), strict=True):
                mean.data.mul_(0.9).add_(one.data, alpha=0.1)
            found.append(loss.item())
        return found

    plain = follow()
    with under("kept-outputs", modules="Encoder") as process:
        assert follow() == plain
        assert process.site.hits == {}
        assert "changes between calls" in process.site.stood_back
