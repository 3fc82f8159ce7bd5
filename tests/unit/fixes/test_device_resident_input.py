"""Batches that stay on the device: on the CPU they are what the script would have, the moment that it looks."""

import copy
import io
import pickle
import random
import weakref

import numpy as np
import pytest
import torch
from tests.torchvision_stub import torchvision
from tests.unit.fixes.inputs import Counting, Drawing, Rows
from tests.unit.fixes.training import Process, under
from tests.unit.pipeline.compile.test_batch_compiler import RGB, Pictures
from tests.unit.pipeline.programs import _copied
from torch.utils.data import DataLoader

from flatout.fixes import device_resident_input
from flatout.pipeline.device.lazy_tensor import LazyTensor, Twin
from flatout.schema.run import Environment, Header, LoaderFacts, Run
from flatout.watch.dataset_state import same

v1 = torchvision.transforms
RESIZED = v1.Compose([v1.Resize(12), v1.ToTensor(), v1.Normalize(*RGB)])
FLIPPED = v1.Compose([v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(*RGB)])


def late(values=None):
    """Return a late tensor, and the list of what was done to fetch it."""
    values, done = torch.arange(12.0).view(3, 4) if values is None else values, []
    return LazyTensor(values, Twin(values.clone, values.clone, lambda: done.append("here"))), done


# -- tensors without values -----------------------------------------------------------------------------------------

USES = {
    "an operation": lambda x: x + 1,
    "reversed": lambda x: 1 - x,
    "numpy": lambda x: x.numpy(),
    "asarray": np.asarray,
    "an index": lambda x: x[1:, 2],
    "a walk": list,
    "a list": lambda x: x.tolist(),
    "text": repr,
    "a copy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "in place": lambda x: x.add_(1),
    "written to": lambda x: x.__setitem__(0, 5.0),
    "a stack of two": lambda x: torch.stack([x, x]),
    "a function": lambda x: torch.nn.functional.cross_entropy(x, torch.tensor([0, 1, 2])),
    "an operator": lambda x: torch.ops.aten.mul(x, 2.0),
    "a module": lambda x: torch.nn.Linear(4, 2, bias=False).requires_grad_(False).eval()(x).shape,
    "a gradient": lambda x: torch.autograd.grad(x.requires_grad_().square().sum(), x),
    "storage": lambda x: x.untyped_storage().nbytes(),
    "memory": lambda x: x.data_ptr() > 0,
    "a type": lambda x: x.double(),
    "another device": lambda x: x.to("meta").shape,
    "detached": lambda x: x.detach(),
    "data": lambda x: x.data,
    "shared": lambda x: x.share_memory_(),
    "a condition": lambda x: bool((x == x).all()),
    "an out argument": lambda x: torch.add(torch.ones(3, 4), 1, out=x),
    "vmap": lambda x: torch.func.vmap(lambda row: row.sum())(x),
    "saved": lambda x: torch.save(x, io.BytesIO()),
    "dlpack": torch.from_dlpack,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.filterwarnings("ignore")
def test_whatever_is_done_with_a_late_tensor_sees_its_values(use):
    torch.manual_seed(0)
    plain = torch.arange(12.0).view(3, 4)
    wanted = USES[use](plain)
    torch.manual_seed(0)
    tensor, done = late()
    found = USES[use](tensor)
    assert same(found, wanted) or found is wanted is None
    assert done == ["here"]
    assert same(tensor + 0, plain + 0)
    assert done == ["here"]


def test_a_late_tensor_is_an_ordinary_one_once_it_was_looked_at():
    tensor, _ = late(torch.arange(24.0).view(2, 3, 4).permute(0, 2, 1))
    tensor.mine = 3
    watched = weakref.ref(tensor)
    tensor.sum()
    assert type(tensor) is torch.Tensor
    assert vars(tensor) == {"mine": 3}
    assert tensor.is_leaf
    assert not tensor._is_view()
    assert watched() is tensor
    assert same(tensor, torch.arange(24.0).view(2, 3, 4).permute(0, 2, 1))


def test_type_shape_and_place_are_told_without_the_values():
    plain = torch.zeros((2, 3, 4), dtype=torch.float16).permute(0, 2, 1)
    tensor, done = late(plain)
    for name in ("shape", "dtype", "device", "ndim", "layout", "requires_grad", "is_cuda", "nbytes"):
        assert getattr(tensor, name) == getattr(plain, name)
    for name in ("size", "stride", "dim", "numel", "element_size", "is_floating_point", "is_contiguous", "__len__"):
        assert getattr(tensor, name)() == getattr(plain, name)()
    assert isinstance(tensor, torch.Tensor)
    assert {tensor: 1}[tensor] == 1
    assert not done


def test_what_is_written_to_a_late_tensor_stays_in_it_and_nowhere_else():
    tensor, _ = late()
    there = tensor.there()
    there.zero_()
    tensor.add_(1)
    assert same(tensor, torch.arange(12.0).view(3, 4) + 1)


# -- a script under the fix -----------------------------------------------------------------------------------------


def seen_by(script, dataset, passes=3, **options):
    """Return what a script makes of each batch, with draws between them."""
    torch.manual_seed(0)
    random.seed(0)
    found = []
    loader = DataLoader(dataset, **{"batch_size": 7, "shuffle": True} | options)
    for _ in range(passes):
        for batch in loader:
            made = _copied(script(batch))
            found.append((made, float(torch.rand(())), random.random()))
    return found


def copying(batch):
    return batch["image"].to("cpu"), batch["label"].to(device=torch.device("cpu")), batch["name"]


def changing_before(batch):
    batch["image"].add_(1)
    return batch["image"].to("cpu"), batch["label"].to("cpu")


def looking_seldom(batch):
    image = batch["image"].to("cpu")
    return image, batch["image"].numpy().copy() if random.random() < 0.2 else None, batch["label"] + 1


def of_another_type(batch):
    return batch["image"].to("cpu"), batch["image"].to("cpu", torch.float64), batch["image"].to(torch.float16)


SCRIPTS = [copying, changing_before, looking_seldom, of_another_type]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("transform", [RESIZED, FLIPPED])
@pytest.mark.slow
def test_a_script_sees_what_it_would_see(script, transform):
    plain = seen_by(script, Pictures(transform))
    with under("device-resident-input", kind="cpu") as process:
        assert same(seen_by(script, Pictures(transform)), plain)
        assert process.site.hits["DataLoader"] == 15


def test_batches_that_are_only_sent_on_have_no_values_on_the_cpu():
    kinds = []

    def script(batch):
        kinds.append((type(batch["image"]), type(batch["label"])))
        return batch["image"].to("cpu")

    with under("device-resident-input", kind="cpu") as process:
        seen_by(script, Pictures(RESIZED))
        assert process.site.hits["there already"] == 13
    plain = torch.Tensor
    assert kinds == [(plain, plain)] * 2 + [(LazyTensor, plain)] * 13


def test_a_place_that_was_looked_at_has_its_values_from_then_on():
    kinds = []

    def script(batch):
        kinds.append(type(batch["image"]) is LazyTensor)
        return batch["image"].to("cpu"), batch["image"].sum() if len(kinds) == 5 else 0

    plain = seen_by(script, Pictures(RESIZED))
    kinds.clear()
    with under("device-resident-input", kind="cpu"):
        assert same(seen_by(script, Pictures(RESIZED)), plain)
    assert kinds == [False] * 2 + [True] * 3 + [False] * 10


@pytest.mark.parametrize("dataset", [Counting, Drawing])
def test_what_is_refused_is_the_script_s_own(dataset):
    def script(batch):
        return batch[0].to("cpu"), batch[1]

    plain = seen_by(script, dataset(40))
    with under("device-resident-input", kind="cpu") as process:
        assert same(seen_by(script, dataset(40)), plain)
        assert process.site.hits == {}


@pytest.mark.parametrize("options", [{"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}])
@pytest.mark.slow
def test_a_loader_with_workers_gives_the_same_batches(options):
    def script(batch):
        return [part.to("cpu") for part in batch]

    plain = seen_by(script, Rows(40), **options)
    with under("device-resident-input", kind="cpu"):
        assert same(seen_by(script, Rows(40), **options), plain)


def test_passes_that_are_broken_off_or_walked_together_give_their_own_batches():
    def walk():
        loader, found = DataLoader(Pictures(RESIZED), batch_size=7), []
        for _ in range(3):
            for batch in loader:
                found.append(batch["image"].to("cpu").clone())
                break
            for one, other in zip(loader, loader, strict=True):
                found += [one["image"].to("cpu").clone(), other["label"].clone()]
        return found

    plain = walk()
    with under("device-resident-input", kind="cpu"):
        assert same(walk(), plain)


def test_no_pass_is_held_by_its_own_batches():
    with under("device-resident-input", kind="cpu"):
        walked = iter(DataLoader(Pictures(RESIZED), batch_size=7))
        next(walked)
        gone = weakref.ref(walked)
        del walked
        assert gone() is None


@pytest.mark.parametrize("order", [1, -1])
def test_beside_compiled_input_it_serves_and_the_other_stays_out_of_the_way(order):
    plain = seen_by(copying, Pictures(RESIZED))
    with Process(*[("compiled-input", {}), ("device-resident-input", {"kind": "cpu"})][::order]) as process:
        assert same(seen_by(copying, Pictures(RESIZED)), plain)
        hits = {site.selection.fix: site.hits for site in process.sites}
    assert hits["compiled-input"] == {}
    assert hits["device-resident-input"]["there already"] == 26


def test_it_is_offered_on_cuda_only_and_for_loaders_by_index():
    loaders = {"loaders": (LoaderFacts(is_training=True, num_samples=100),), "header": Header(script="a")}
    cuda = Environment(device_kind="cuda")
    assert device_resident_input.choices(Run(environment=cuda, **loaders)) == ({},)
    assert device_resident_input.choices(Run(**loaders)) == ()
    assert device_resident_input.choices(Run(environment=cuda, header=Header(script="a"))) == ()
