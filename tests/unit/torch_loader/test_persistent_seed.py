"""The seed of workers that stay is drawn once for a loader, whoever makes the batches of which pass."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from flatout.torch_loader.persistent_seed import WorkerSeeds

ROWS = TensorDataset(torch.arange(4))


class Iterator:
    """Draws what torch's own draws where it is made."""

    def __init__(self, loader):
        generator = loader.generator if loader.generator is not None else torch.default_generator
        self._base_seed = torch.empty((), dtype=torch.int64).random_(generator=generator).item()


def iterate(loader):
    return Iterator(loader)


def loader(**named):
    return DataLoader(ROWS, **{"num_workers": 1, "persistent_workers": True, **named})


def test_workers_that_do_not_stay_have_a_seed_for_each_pass():
    seeds, walked = WorkerSeeds(), loader(persistent_workers=False)
    assert [seeds.begin(walked) for _ in range(2)] == [False, False]
    torch.manual_seed(0)
    found = [seeds.iterate(walked, walked, iterate)._base_seed for _ in range(2)]
    torch.manual_seed(0)
    assert found == [Iterator(walked)._base_seed for _ in range(2)]


@pytest.mark.parametrize("generator", [None, 7])
def test_a_seed_that_a_served_pass_has_drawn_is_that_of_the_workers_that_come_later(generator):
    own = None if generator is None else torch.Generator().manual_seed(generator)
    seeds, walked = WorkerSeeds(), loader(generator=own)
    torch.manual_seed(1)
    assert not seeds.begin(walked)
    served = Iterator(walked)._base_seed  # as the pass that is served draws it
    torch.rand(3)
    stream, state = torch.get_rng_state(), None if own is None else own.get_state()
    assert seeds.begin(walked)
    assert seeds.iterate(walked, walked, iterate)._base_seed == served
    assert torch.equal(torch.get_rng_state(), stream)  # nothing is drawn a second time
    assert own is None or torch.equal(own.get_state(), state)
    assert walked.generator is own


def test_workers_that_are_there_keep_their_seed():
    seeds, walked = WorkerSeeds(), loader()
    walked._iterator = Iterator(walked)
    assert seeds.begin(walked)
    twin = loader()
    assert (
        seeds.iterate(walked, twin, iterate)._base_seed
        == Iterator(loader(generator=torch.Generator().manual_seed(walked._iterator._base_seed)))._base_seed
    )
    walked._iterator = None


def test_an_error_leaves_the_generator_of_the_script():
    seeds, walked = WorkerSeeds(), loader()
    seeds.begin(walked)

    def fail(_):
        raise RuntimeError("no workers")

    with pytest.raises(RuntimeError, match="no workers"):
        seeds.iterate(walked, walked, fail)
    assert walked.generator is None
