"""Prepared samples on disk as a fix: found by the next training, beside other fixes, and in trials."""

import os
from dataclasses import replace

import pytest
import torch
from tests.unit.fixes.inputs import Drawing, Rows, passes
from tests.unit.fixes.training import Process, under
from torch.utils.data import DataLoader

from flatout.fixes.cached_input import choices
from flatout.fixes.core.apply import install_fix
from flatout.fixes.core.catalog import find_fix
from flatout.probe.core.event_log import EventLog
from flatout.probe.core.seams import Seams
from flatout.probe.model.modules import ModuleWatch
from flatout.rules.core.catalog import catalog
from flatout.schema.run import Header, LoaderFacts, Run, SamplePrefix
from flatout.schema.trial import Selection
from flatout.watch.dataset_state import same

BATCHES = 5


class Quick(Rows):
    """Samples that do not wait: those that do are asked for early, and served from the first batch on."""

    def __getitem__(self, index):
        return torch.arange(6.0) * index, index % 3


def load(epochs=3, dataset=Quick):
    return passes(DataLoader(dataset(), batch_size=8), epochs)


def batches(seen):
    return [batch for batch, *_ in seen]


def test_the_next_training_has_its_batches_from_the_first_pass_on(workdir):
    wanted = batches(load())
    for hits in (2 * BATCHES, 3 * BATCHES):
        with under("cached-input") as process:
            assert same(batches(load()), wanted)
            wait(process)
            assert process.site.hits == {"DataLoader": hits}
    assert len(list((workdir / ".flatout" / "cache").glob("*.samples"))) == 1


def wait(process):
    """Wait until what the fix saves is saved, as the end of a process does."""
    from flatout.pipeline.cache.disk.background_writes import _busy

    for behind in list(_busy):
        assert behind.wait(30)


@pytest.mark.parametrize("order", [("cached-input", "compiled-input"), ("compiled-input", "cached-input")])
@pytest.mark.slow
def test_beside_compiled_input_it_serves_and_the_other_stays_out_of_the_way(order, workdir):
    wanted = batches(load())
    for hits in (2 * BATCHES, 3 * BATCHES):
        with Process(*[(name, {}) for name in order]) as process:
            assert same(batches(load()), wanted)
            wait(process)
            found = {site.selection.fix: site.hits for site in process.sites}
            assert found == {"cached-input": {"DataLoader": hits}, "compiled-input": {}}


def test_where_it_is_switched_off_compiled_input_serves(workdir):
    with Process(("compiled-input", {}), ("cached-input", {})) as process:
        process.sites[1].disable()
        load()
        assert process.sites[0].hits == {"DataLoader": 2 * BATCHES}
    assert not (workdir / ".flatout").exists()


@pytest.mark.parametrize("purpose", ["timing", "verify"])
def test_a_trial_reads_and_writes_nothing_on_disk(purpose, workdir):
    seams = Seams()
    modules = ModuleWatch(EventLog(lambda step: None, lambda stretch: None))
    site = install_fix(Selection("cached-input", {}), seams, modules, purpose)
    site.enable()
    load(1)
    site.disable()
    seams.undo()
    assert site.hits == {"DataLoader": BATCHES}
    assert os.listdir(workdir) == []


def test_what_is_random_is_left_alone(workdir):
    with under("cached-input") as process:
        load(2, Drawing)
    assert process.site.hits == {}
    assert not (workdir / ".flatout").exists()


FIXED = SamplePrefix(checked=8, deterministic=True, prefix_share=1.0, seconds=0.01, sample_bytes=1000)
COSTLY = LoaderFacts(is_training=True, num_samples=10_000, prefix=FIXED)


@pytest.mark.parametrize(
    ("loader", "offered"),
    [
        (COSTLY, 1),
        (replace(COSTLY, num_samples=1000), 0),  # 10 s
        (replace(COSTLY, is_training=False), 0),
        (replace(COSTLY, iterable_style=True), 0),
        (replace(COSTLY, prefix=None), 0),
        (replace(COSTLY, prefix=replace(FIXED, deterministic=False)), 0),
        (replace(COSTLY, prefix=replace(FIXED, checked=0)), 0),
        (replace(COSTLY, prefix=replace(FIXED, shares_memory=True)), 0),
    ],
)
def test_it_is_offered_where_making_all_samples_takes_long_and_nothing_is_random(loader, offered):
    assert len(choices(Run(header=Header(script="train.py"), loaders=(loader,)))) == offered


def test_it_addresses_the_rules_that_offer_it():
    offering = {
        rule.code
        for rule in catalog()
        for one in rule.fires_on
        if "cached-input" in rule.check(one.run, one.breakdown, one.headroom).fixes
    }
    assert set(find_fix("cached-input").addresses) == offering


def test_a_folder_that_is_reached_through_a_link_is_refused_with_where_it_leads(workdir, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (workdir / ".flatout").symlink_to(elsewhere)
    site = install_fix(Selection("cached-input"), Seams(), ModuleWatch(EventLog(id, id)))
    assert ".flatout is a link" in site.failure
    assert not list(elsewhere.iterdir())
