"""A compiled loader gives what the plain one gives: the same bits, in the same order, from the same random streams."""

import threading
import time
import traceback

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.pipeline import programs
from tests.unit.pipeline.programs import Images, Ordered, Program
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from flatout.pipeline import compile_loader
from flatout.pipeline.inspect.determinism import some_indices
from flatout.pipeline.serve import input_facts
from flatout.watch.dataset_state import same

MANY = settings(  # each looks at the data set in two copies of the process, which take most of its time
    max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def agree(program, passes=3):
    """Run a program plainly and compiled; return the compiled loader once both were seen to be equal."""
    plain, _ = program.seen(passes=passes)
    ours, loader = program.seen(compile_loader, passes)
    assert len(plain) == len(ours)
    for one, other in zip(plain, ours, strict=True):
        assert same(one, other)
    return loader


NO_WORKERS = st.just(0)


def samplers(length):
    """Return options of a DataLoader that say which samples come when."""
    return st.one_of(
        st.fixed_dictionaries(
            {"shuffle": st.booleans(), "batch_size": st.integers(1, 7), "drop_last": st.booleans()},
            optional={"own_generator": st.just(True)},
        ),
        st.fixed_dictionaries(
            {
                "batch_size": st.integers(1, 7),
                "drop_last": st.booleans(),
                "sampler": st.sampled_from(
                    [
                        SubsetRandomSampler(range(0, length, 2)),
                        WeightedRandomSampler([1.0 + index for index in range(length)], length + 3),
                        RandomSampler(range(length), replacement=True, num_samples=2 * length),
                        RandomSampler(range(length), num_samples=length + 2),
                        Ordered(length),
                        list(range(length - 1, -1, -1)),
                    ]
                ),
            }
        ),
        st.builds(
            lambda size, drop: {"batch_sampler": BatchSampler(SequentialSampler(range(length)), size, drop)},
            st.integers(1, 7),
            st.booleans(),
        ),
    )


@st.composite
def pipelines(draw, workers=NO_WORKERS):
    length = draw(st.integers(1, 24))
    dataset = draw(st.sampled_from(programs.datasets(length)))
    if draw(st.integers(0, 3)) == 0:
        kinds = (programs.Counting, programs.SeldomRandom, programs.OwnGenerator, programs.Ragged)
        dataset = draw(
            st.sampled_from([*(kind(length) for kind in kinds), *(Images(length, each) for each in programs.RANDOM)])
        )
    options = draw(samplers(length))
    collates = [None, None, None]
    if isinstance(dataset, Images) and dataset.form == "tuple":
        collates += [programs.padded] if isinstance(dataset, programs.Ragged) else [programs.stacked, programs.centred]
    collate = draw(st.sampled_from(collates))
    options |= {"num_workers": draw(workers)} | ({"collate_fn": collate} if collate is not None else {})
    if options["num_workers"]:
        options |= {"persistent_workers": draw(st.booleans()), "prefetch_factor": draw(st.integers(1, 3))}
    return Program(dataset, options, draw(st.booleans()), draw(st.integers(0, 3)))


def raises(program):
    """Return whether the script itself fails, as with ragged samples under the default collate function.

    It may do so in a later pass only, when other samples come together.
    """
    try:
        program.seen()
    except Exception as error:
        let_go(error)
        return type(error)
    return None


def let_go(error):
    """Let the frames of an exception hold nothing.

    Where a worker has raised it, a frame of torch's holds it, and so the iterator in a circle: a collection would close
    the pipes to the workers first and then let the iterator write to them.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def check(program):
    error = raises(program)
    if error is None:
        loader = agree(program)
        assert loader.explain()
    else:
        with pytest.raises(error) as raised:
            program.seen(compile_loader)
        let_go(raised.value)


@settings(MANY, max_examples=examples(40))
@given(pipelines())
@pytest.mark.slow
def test_a_pipeline_without_workers_gives_the_same_batches(program):
    check(program)


@pytest.mark.slow
@MANY
@given(pipelines())
def test_any_of_many_pipelines_without_workers_gives_the_same_batches(program):
    check(program)


@pytest.mark.slow
@settings(MANY, max_examples=examples(60))
@given(pipelines(workers=st.integers(1, 3)))
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_any_pipeline_with_workers_gives_the_same_batches(program):
    check(program)


@pytest.mark.slow
@settings(MANY, max_examples=examples(60))
@given(pipelines(workers=st.integers(0, 3)))
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.full
def test_any_pipeline_of_samples_that_wait_gives_the_same_batches(program):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(input_facts, "in_flight", lambda times, one_core: 64 if times else 0)  # all that no kernel makes
        check(program)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.few(3)
def test_workers_that_take_over_get_the_seed_that_was_drawn_for_them(workers, stays, size):
    class Waits(Images):
        def __getitem__(self, index):
            time.sleep(0.003)
            return super().__getitem__(index)

    options = {"batch_size": size, "num_workers": workers, "persistent_workers": stays}
    program = Program(Waits(8), options | {"collate_fn": programs.centred}, draws=False)
    assert "left as it is" in agree(program).explain()


class Eager:
    """A batch sampler that draws where it is asked for an iterator."""

    def __init__(self, length, generator=None):
        self.length, self.generator = length, generator

    def __iter__(self):
        return iter([part.tolist() for part in torch.randperm(self.length, generator=self.generator).split(3)])

    def __len__(self):
        return -(-self.length // 3)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("collate", [None, programs.centred])
@pytest.mark.few(4)
def test_a_sampler_that_draws_at_once_does_so_as_often_as_in_the_plain_loader(workers, stays, own, collate):
    sampler = Eager(12, torch.Generator().manual_seed(3) if own else None)
    options = {"batch_sampler": sampler, "num_workers": workers, "persistent_workers": stays and workers > 0}
    plain, _ = Program(Images(12), {**options, "collate_fn": collate}).seen(passes=4)
    if own:
        sampler.generator.manual_seed(3)
    ours, _ = Program(Images(12), {**options, "collate_fn": collate}).seen(compile_loader, passes=4)
    assert len(plain) == len(ours)
    assert all(same(one, other) for one, other in zip(plain, ours, strict=True))


def draw_meanwhile(loader, number):
    """Return what a thread of the script's own draws while another one walks a loader."""
    torch.manual_seed(0)
    walking = threading.Thread(target=lambda: [None for _ in range(2) for _ in loader])
    walking.start()
    drawn = []
    while walking.is_alive() or len(drawn) < number:
        drawn.append(torch.rand(()).item())
        time.sleep(0.0002)
    walking.join()
    return drawn


@pytest.mark.slow
def test_what_another_thread_draws_while_batches_are_kept_is_hardly_ever_undone():
    data = TensorDataset(torch.zeros(2048, 3, 32, 32))
    loader = DataLoader(data, batch_size=32, num_workers=1, collate_fn=lambda some: torch.stack([x for (x,) in some]))
    compiled = compile_loader(loader)
    next(iter(compiled))  # what is tried once, is tried by now
    drawn = draw_meanwhile(compiled, 500)
    assert len(set(drawn)) >= 0.98 * len(drawn)  # proving a sample takes 0.3 % of the time, and puts the streams back


def kept(dataset, **options):
    """Return what is said of a data set after two passes."""
    return agree(Program(dataset, {"batch_size": 4, **options}), passes=3).explain()


@pytest.mark.parametrize("number", range(len(programs.datasets(12))))
@pytest.mark.few(7)
@pytest.mark.slow
def test_what_is_the_same_each_time_is_kept(number):
    dataset = programs.datasets(12)[number]
    told = kept(dataset, shuffle=True)
    in_memory = isinstance(dataset, TensorDataset)
    assert f"{0 if in_memory else len(dataset)} samples kept" in told


@pytest.mark.parametrize("transform", programs.RANDOM)
def test_a_random_transform_is_left_alone_and_named(transform):
    assert "draws random numbers" in kept(Images(12, transform))


def test_one_random_sample_among_many_is_noticed_when_it_is_made():
    assert "random numbers are drawn" in kept(programs.SeldomRandom(12))


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        (programs.Counting(12), "changes while it is read"),
        (programs.OwnGenerator(12), "random generator of its own"),
        (programs.Ragged(12), "depends on the other samples"),
    ],
)
def test_a_data_set_that_cannot_be_kept_says_why(dataset, reason):
    options = {"collate_fn": programs.padded, "batch_size": 3} if isinstance(dataset, programs.Ragged) else {}
    assert reason in kept(dataset, **options)


def test_a_collate_function_that_mixes_samples_is_given_samples_that_are_kept():
    assert "12 samples kept" in kept(Images(12), collate_fn=programs.centred)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("length", [2, 12])
@pytest.mark.slow
def test_a_collate_function_that_mixes_samples_is_seen_through_where_the_first_batch_holds_one_twice(
    length, num_workers
):
    order = [0, 0, 0, 1, 1, 1, 1, 1]
    options = {"batch_size": 2, "sampler": order, "collate_fn": programs.centred, "num_workers": num_workers}
    told = agree(Program(Images(length), options)).explain()
    assert ("left as it is" if num_workers else "samples kept") in told


@pytest.mark.parametrize("length", range(1, 12))
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_some_indices_are_the_first_the_last_and_some_between(length, number):
    some = some_indices(length, number)
    assert len(some) == min(length, number) and some == sorted(set(some)) and some[0] == 0
    assert number == 1 or some[-1] == length - 1


def test_a_call_of_the_data_set_for_proof_does_not_count():
    dataset = programs.Counting(12)
    compile_loader(torch.utils.data.DataLoader(dataset)).explain()
    assert dataset.calls == 0


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_pass_without_a_whole_batch_is_empty(shuffle):
    program = Program(TensorDataset(torch.arange(3)), {"batch_size": 7, "drop_last": True, "shuffle": shuffle})
    assert "0 batches came from there" in agree(program).explain()
