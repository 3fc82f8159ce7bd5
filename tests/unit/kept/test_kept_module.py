"""Outputs of frozen modules that come from memory are those that the module would give.

Covers flatout.kept.row_outputs through it, too.
"""

import gc
import weakref

import pytest
import torch
from tests.unit.fixes.training import same_bits
from tests.unit.kept.test_kept_function import Once
from torch import nn

from flatout.errors import ChangedTooLate
from flatout.kept import kept_module
from flatout.kept.kept_module import KeptModule
from flatout.kept.reports import Reports
from flatout.kept.row_outputs import RowOutputs, mixed, rows_given

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Encoder(nn.Module):
    """Enough work that telling rows apart is little."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1))
        self.eval().requires_grad_(False)

    def forward(self, x):
        return self.layers(x).mean((2, 3))


class Kept:
    """A module that is kept, with what was told of it."""

    def __init__(self, module, on_change="stop", fits=lambda size, owner: True):
        self.module, self.left, self.failed, self.acted = module, [], [], 0
        self.kept = KeptModule(
            module, "Encoder", Reports(self.left.append, self.failed.append, on_change, Once()), self._act, fits
        )

    def _act(self):
        self.acted += 1

    def call(self, *args, **kwargs):
        return self.kept.call(self.module._call_impl, *args, **kwargs)

    def passes(self, batches, times=3):
        """Call it with batches, several times over, held against plain calls; return how many came from memory."""
        before = self.acted
        for _ in range(times):
            for batch in batches:
                given = self.call(batch.clone())
                assert same_bits(given, self.module(batch))
                given.add_(1)  # it is the caller's own
        return self.acted - before


def images(number, seed=1):
    return torch.randn(number, 1, 24, 24, generator=torch.Generator().manual_seed(seed))


def test_batches_that_come_back_come_from_memory():
    kept, batches = Kept(Encoder()), images(32).split(8)
    assert kept.passes(batches) == 2 * 4 - 2, kept.left  # the first call is clocked alone, one answer was proven
    assert not kept.left


def test_rows_come_back_in_other_batches():
    kept, data = Kept(Encoder()), images(48)
    for seed in range(6):
        order = torch.randperm(48, generator=torch.Generator().manual_seed(seed))
        kept.passes(data[order].split(8), times=1)
    assert kept.acted >= 6, kept.left


def test_a_batch_of_another_size_is_another_one():
    kept, data = Kept(Encoder()), images(20)
    kept.passes(data.split(8))
    acted = kept.acted
    assert acted > 0
    assert kept.passes([data[:7]], times=1) == 0
    assert same_bits(kept.call(data[8:16].double().float()), kept.module(data[8:16]))


class Mean(Encoder):
    """Rows that depend on their batch."""

    def forward(self, x):
        return self.layers(x - x.mean()).mean((2, 3))


class Decides(Encoder):
    def forward(self, x):
        return self.layers(x).mean((2, 3)) * (2 if x.mean().item() > 0 else 1)


@pytest.mark.parametrize("kind", [Mean, Decides])
def test_rows_that_depend_on_their_batch_come_back_in_whole_batches_alone(kind):
    kept, data = Kept(kind()), images(48)
    for seed in range(4):
        order = torch.randperm(48, generator=torch.Generator().manual_seed(seed))
        assert kept.passes(data[order].split(8), times=1) == 0
    assert kept.passes(data.split(8), times=2) > 0


class MeanOfFour(Encoder):
    """Rows that depend on their batch where that is a small one."""

    def forward(self, x):
        return self.layers(x - x.mean() if len(x) == 4 else x).mean((2, 3))


def test_batches_of_each_form_are_proven_by_themselves():
    kept, data = Kept(MeanOfFour()), images(48)
    for seed in range(6):
        order = torch.randperm(48, generator=torch.Generator().manual_seed(seed))
        kept.passes(data[order].split(8), times=1)
    acted = kept.acted
    assert acted >= 6, kept.left
    for seed in range(4):
        order = torch.randperm(24, generator=torch.Generator().manual_seed(seed))
        assert kept.passes(data[order].split(4), times=1) == 0
    assert kept.passes(data.split(8), times=1) == 6
    assert kept.passes(data[:24].split(4), times=2) >= 6


def test_batches_of_two_forms_in_turn_are_both_put_together_anew():
    kept, data = Kept(Encoder()), images(48)
    for seed in range(8):
        order = torch.randperm(48, generator=torch.Generator().manual_seed(seed))
        batches = [*data[order[:24]].split(8), *data[order[24:]].split(6)]
        kept.passes(batches[::2] + batches[1::2], times=1)
    known = next(iter(kept.kept._known.values()))
    assert list(known.mixed.values()) == [kept_module._MIXED] * 2
    assert not known.latest


def test_a_batch_is_held_of_a_few_forms_alone():
    kept, data = Kept(Encoder()), images(48)
    kept.passes([data[:number] for number in range(2, 20)], times=1)
    assert len(next(iter(kept.kept._known.values())).latest) == kept_module._MOST_FORMS


def test_a_module_that_nobody_has_any_more_is_forgotten_with_its_outputs():
    kept = Kept(Encoder())
    kept.passes(images(16).split(8))
    ref = weakref.ref(kept.kept)
    del kept
    gc.collect()
    assert ref() is None


def test_weights_that_change_are_seen_whoever_writes():
    kept, batches = Kept(Encoder()), images(32).split(8)
    assert kept.passes(batches) > 0
    weight = kept.module.layers[2].weight
    for change in (
        lambda: weight.add_(0.1),
        lambda: weight.data.mul_(1.5),
        lambda: weight.detach().numpy().fill(0.25),
        lambda: kept.module.load_state_dict(Encoder(7).state_dict()),
        lambda: setattr(kept.module.layers[0], "weight", nn.Parameter(torch.ones(24, 1, 3, 3), requires_grad=False)),
        lambda: setattr(kept.module, "forward", lambda x: x[:, 0, 0, :3] * 2),
    ):
        change()
        assert kept.passes(batches, times=1) == 0
        assert kept.passes(batches, times=1) > 0, kept.left


def test_weights_that_change_at_each_call_are_given_up():
    kept, batch = Kept(Encoder()), images(8)
    for _ in range(20):
        kept.module.layers[2].weight.data.mul_(0.99)
        assert same_bits(kept.call(batch), kept.module(batch))
    assert kept.acted == 0
    assert "changes between calls" in kept.left[0]


class Dropping(Encoder):
    def forward(self, x):
        return nn.functional.dropout(super().forward(x), 0.5)


class Counting(Encoder):
    def forward(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        return super().forward(x)


class Printing(Encoder):
    def forward(self, x):
        print("an encoder")
        return super().forward(x)


class Passing(Encoder):
    def forward(self, x):
        super().forward(x)
        return x


class Scalar(Encoder):
    def forward(self, x):
        return super().forward(x).sum()


@pytest.mark.parametrize("kind", [Dropping, Counting, Printing, Passing, Scalar])
def test_a_module_that_does_more_than_compute_rows_is_called_each_time(kind, capsys):
    kept, batch = Kept(kind()), images(8)
    for _ in range(6):
        kept.call(batch)
    assert kept.acted == 0
    assert kept.left
    capsys.readouterr()


def test_a_module_that_learns_or_whose_input_does_is_called_each_time():
    kept, batch = Kept(Encoder()), images(8)
    kept.module.layers[2].requires_grad_(True)
    for _ in range(4):
        assert kept.call(batch).requires_grad
    with torch.no_grad():
        kept.passes([batch], times=5)
    assert kept.acted > 0
    assert kept.call(batch).requires_grad
    other = Kept(Encoder())
    for _ in range(4):
        assert other.call(images(8).requires_grad_()).requires_grad
    assert other.acted == 0


def test_hooks_of_the_script_are_called_each_time():
    kept, calls = Kept(Encoder()), []
    kept.module.layers[0].register_forward_hook(lambda *_: calls.append(1))
    for _ in range(5):
        kept.call(images(8))
    assert len(calls) == 5
    late, calls = Kept(Encoder()), []
    late.passes([images(8)])
    late.module.layers[0].register_forward_hook(lambda *_: calls.append(1))
    for _ in range(5):
        late.call(images(8))
    assert len(calls) >= 5


def test_modes_have_outputs_of_their_own():
    kept, batches = Kept(Encoder()), images(32).split(8)
    assert kept.passes(batches) > 0
    kept.module.train()
    assert kept.passes(batches, times=1) == 0
    kept.module.eval()
    assert kept.passes(batches, times=1) == 4


def test_no_room_ends_it_where_nothing_came_back():
    kept = Kept(Encoder(), fits=lambda size, owner: False)
    kept.passes(images(32).split(8))
    assert kept.acted == 0
    assert "do not fit" in kept.left[0]


def test_a_proof_that_fails_stops_the_training():
    kept, batches = Kept(Encoder()), images(32).split(8)
    assert kept.passes(batches) > 0
    for known in kept.kept._known.values():
        for block, _ in known.outputs._where.values():
            block[0].zero_()
    kept.kept._reports.pace.due = True
    with pytest.raises(ChangedTooLate, match="answered from memory"):
        kept.call(batches[0])
    assert kept.failed


def test_rows_are_told_by_their_contents_and_the_form_of_their_batch():
    one, other = images(4), images(4)
    assert rows_given((one,), {}) == rows_given((other,), {})
    assert rows_given((one, 1), {}) != rows_given((other, 2), {})
    other[2, 0, 0, 0] += 1
    keys = [rows_given((each,), {}).keys for each in (one, other)]
    assert [a == b for a, b in zip(*keys, strict=True)] == [True, True, False, True]
    assert rows_given((one.to(memory_format=torch.channels_last),), {}).form != rows_given((one,), {}).form
    assert rows_given((object(),), {}) is None
    assert rows_given((one.clone().requires_grad_(),), {}) is None
    table = torch.ones(3)
    assert rows_given((one, table), {}).form != rows_given((one, table * 2), {}).form


def test_a_tensor_without_numbers_has_no_bytes():
    one, empty = images(4), torch.zeros(0, 5)
    assert rows_given((one, empty), {}).keys == rows_given((one, empty.clone()), {}).keys
    assert rows_given((one, empty), {}).form != rows_given((one, torch.zeros(0, 6)), {}).form


def test_a_mixed_batch_has_rows_of_both_in_other_places():
    one, other = torch.zeros(4, 2), torch.ones(4, 2)
    assert mixed((one, 3), (other, 3), 4)[0][:, 0].tolist() == [0, 1, 0, 1]
    count = torch.arange(4.0)
    assert mixed(count, count + 10, 4).tolist() == [3, 12, 1, 10]


def test_outputs_come_back_in_the_strides_that_they_had():
    outputs, batch = RowOutputs(lambda size, owner: True), images(4)
    given = rows_given((batch,), {})
    made = torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last)
    assert outputs.add(given, {"a": made, "b": [torch.arange(4)]}, set(), whole=False)
    again = outputs.make(given)
    assert same_bits(again, {"a": made, "b": [torch.arange(4)]})
    assert again["a"].stride() == made.stride()
