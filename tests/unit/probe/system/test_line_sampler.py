"""The line sampler, and which lines are the user's own."""

import importlib.util
import json
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests import watched
from tests.watched import line_of, nap, slow_decode

from flatout.probe.core.user_places import caller, is_user_file, leaf_module, user_stack
from flatout.probe.model import padding
from flatout.probe.system import line_sampler
from flatout.probe.system.line_sampler import Doing, LineSampler, input_stage, where
from flatout.schema.phase import Phase


def sampled(work, stage="sample"):
    """Sample another thread that does `work` until told to stop; return the costs."""
    stop = threading.Event()
    thread = threading.Thread(target=lambda: work(stop))
    thread.start()
    sampler = LineSampler("worker", Doing(stage=stage), lambda: thread.ident)
    sampler.start()
    time.sleep(0.4)
    sampler.stop()
    stop.set()
    thread.join()
    return sampler, sampler.costs()


@pytest.mark.parametrize(("work", "text"), [(slow_decode, "# DECODE"), (nap, "# NAP")])
def test_the_line_another_thread_is_in(work, text):
    sampler, costs = sampled(work)
    assert costs[0].process == "worker"
    assert (costs[0].phase, costs[0].stage) == (Phase.INPUT, "sample")
    assert (costs[0].stack[0].file, costs[0].stack[0].line) == (watched.__file__, line_of(work, text))
    assert costs[0].stack[0].function == work.__name__
    assert sum(cost.seconds for cost in costs) == pytest.approx(sampler.wall_s)
    assert 0.1 < sampler.wall_s < 1.0
    assert all(cost.samples > 0 for cost in costs)


def test_sampling_leaves_the_switch_interval_as_it_was():
    before = sys.getswitchinterval()
    sampled(nap)
    assert sys.getswitchinterval() == before


def test_a_thread_that_is_gone_is_no_error():
    sampler = LineSampler("main", Doing(), lambda: -1)
    sampler.start()
    time.sleep(0.05)
    sampler.stop()
    assert sampler.costs() == ()


def test_modules_of_our_own_work_exist():
    assert all(importlib.util.find_spec(module) for module in line_sampler._OWN_WORK)


@pytest.mark.parametrize(
    "module", ["core.step_tracker", "core.event_log", "system.garbage_collector", "system.setting_trial"]
)
@pytest.mark.slow
def test_our_own_work_is_no_cost_of_the_script(module):
    assert f"flatout.probe.{module}" in line_sampler._OWN_WORK
    own = {"__name__": f"flatout.probe.{module}", "time": time}
    exec("def emit():\n    time.sleep(0.01)", own)

    def work(stop):
        while not stop.is_set():
            own["emit"]()

    _, costs = sampled(work)
    assert sum(cost.samples for cost in costs) <= 2


def test_phases_and_host_parts_of_the_account_s_slots():
    assert [where(slot, False)[0] for slot in range(7)] == list(Phase)[:7]
    assert [where(slot, False) for slot in (7, 8, 9)] == [(Phase.HOST, part) for part in ("lead", "loss", "tail")]
    assert [where(slot, True)[0] for slot in (7, 8, 9, 10)] == [Phase.EPOCH_GAP] * 4
    assert where(0, True)[0] is Phase.INPUT


def test_stages_of_a_loader():
    stages = []

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            stages.append(input_stage(sys._getframe()))
            return index

    class Sampler(torch.utils.data.Sampler):
        def __iter__(self):
            stages.append(input_stage(sys._getframe()))
            yield 1

    list(torch.utils.data.DataLoader(Data(), sampler=Sampler()))
    assert stages == ["sampler", "sample"]
    assert input_stage(None) == ""


@pytest.mark.parametrize(
    ("file", "own"),
    [
        (__file__, True),
        ("/home/someone/project/train.py", True),
        ("train.py", True),
        (json.__file__, False),
        (torch.__file__, False),
        ("/opt/venv/lib/python3.12/site-packages/lightning/trainer.py", False),
        ("/usr/lib/python3/dist-packages/yaml/__init__.py", False),
        ("/opt/venv/bin/torchrun", False),
        ("<string>", False),
        ("<frozen importlib._bootstrap>", False),
        ("<ipython-input-3-abc>", True),
        ("", False),
        (LineSampler.__init__.__code__.co_filename, False),
    ],
)
def test_whose_line_it_is(file, own):
    assert is_user_file(file) is own


def test_the_stack_holds_user_lines_only_innermost_first():
    found = []

    class Reader:
        def read(self, text):
            found.append(user_stack(sys._getframe()))
            return text

    json.loads("[1]", object_hook=None, parse_int=Reader().read)  # OUTER
    inner, outer = found[0][:2]
    assert inner[2].endswith("Reader.read")
    assert outer[1] == line_of(test_the_stack_holds_user_lines_only_innermost_first, "# OUTER")
    assert all(is_user_file(file) for file, _, _ in found[0])
    assert len(found[0]) <= 12


def test_the_caller_and_the_leaf():
    place = caller()  # HERE
    assert (place.file, place.line) == (__file__, line_of(test_the_caller_and_the_leaf, "# HERE"))
    assert leaf_module(sys._getframe()) == ("", "test_the_caller_and_the_leaf", False)
    library = SimpleNamespace(f_code=json.loads.__code__, f_globals=vars(json))
    assert leaf_module(library) == ("json", "loads", False)
    of_torch = SimpleNamespace(f_code=json.loads.__code__, f_globals={"__name__": padding.__name__})
    assert leaf_module(of_torch) == ("flatout", "loads", True)  # that module imports torch
    assert Path(json.__file__).parent.name == "json"
