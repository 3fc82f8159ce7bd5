"""What every fix promises, held for all of them by one table: hits, equal results, harmless twice, undone wholly."""

import ast
import contextlib
import gc
import inspect
import json
import random
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from tests.unit.fixes.inputs import Rows, passes
from tests.unit.fixes.training import Process, train
from torch.utils.data import DataLoader

from flatout.fixes.core.catalog import find_fix, fixes
from flatout.rules.core.catalog import catalog
from flatout.schema.run import Environment, Header, LoaderFacts, ModelFacts, Run
from flatout.schema.trial import Equivalence
from flatout.watch.dataset_state import same

HEADINGS = ["## What it does", "## Why it helps", "## How equal", "## When it is wrong"]
ALL = {fix.name: fix for fix in fixes()}
KEPT = tempfile.TemporaryDirectory()


def load(**options):
    """Walk a loader for three epochs."""
    torch.manual_seed(0)
    random.seed(0)
    return passes(DataLoader(Rows(), batch_size=4, shuffle=True, **options))


def load_and_copy(**options):
    """Walk a loader and send its batches where they are."""
    torch.manual_seed(0)
    rows = Rows(slow_s=0.003)  # that they wait is told on a busy machine, too
    loader = DataLoader(rows, batch_size=4, shuffle=True, **options)
    return [(x.to("cpu"), y.to(device=torch.device("cpu"))) for _ in range(2) for x, y in loader]


def learn():
    """Train a network and return its weights and losses."""
    model, _, losses = train(steps=4)
    return [*model.state_dict().values(), losses]


def learn_adam():
    model, optimizer, losses = train(steps=4, make=torch.optim.Adam)
    return [*model.state_dict().values(), *optimizer.state_dict()["state"][0].values(), losses]


def learn_searching():
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        return learn()


@dataclass
class Case:
    """How one fix is put to the test on this machine."""

    script: Callable[[], object]
    settings: dict = field(default_factory=dict)
    already: Callable[[], object] | None = None  # the same script, which does by itself what the fix does
    before: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext  # or it was done before it began
    cuda: bool = False  # it may do nothing here


@contextlib.contextmanager
def more_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    yield
    torch.set_num_threads(before)


def without_collector():
    gc.disable()
    try:
        return learn()
    finally:
        gc.enable()


CASES = {
    "allocator": Case(learn, cuda=True),
    "anomaly-off": Case(learn_searching, already=learn),
    "cached-input": Case(load, {"folder": KEPT.name}),
    "compiled-input": Case(load),
    "cpu-threads": Case(learn, {"threads": torch.get_num_threads() + 1}, learn, more_threads),
    "cudnn-search": Case(learn, cuda=True),
    "denormals": Case(learn),
    "device-prefetch": Case(lambda: load_and_copy(num_workers=2), {"kind": "cpu"}, load_and_copy),
    "device-resident-input": Case(load_and_copy, {"kind": "cpu"}),
    "gc-control": Case(learn, already=without_collector),
    "loader-workers": Case(load, {"workers": 2}, lambda: load(num_workers=2)),
    "one-pass-optimizer": Case(learn_adam),
    "persistent-workers": Case(
        lambda: load(num_workers=1), already=lambda: load(num_workers=1, persistent_workers=True)
    ),
    "pinned-copy": Case(lambda: load_and_copy(num_workers=1), cuda=True),
    "tf32": Case(learn, cuda=True),
    "worker-threads": Case(lambda: load(num_workers=1), already=load),
}
ON_REQUEST_OR_HERE = sorted(set(CASES) & set(ALL))


@pytest.fixture(autouse=True)
def as_in_a_script(request):
    """Where the collector is a fix's, it sees all that it sees in a script."""
    if "gc-control" in request.node.name or "together" in request.node.name:
        request.getfixturevalue("in_sight")


SET_ASIDE = 10_000 if sys.version_info >= (3, 12) else 0  # from 3.12 on a few objects are frozen from the start


def state():
    """Return everything outside the script that a fix of the table may touch."""
    data, worker = torch.utils.data.dataloader, torch.utils.data._utils
    owners = (data.DataLoader, data._BaseDataLoaderIter, data._MultiProcessingDataLoaderIter, torch.Tensor)
    attributes = {(owner.__name__, name): value for owner in owners for name, value in vars(owner).items()}
    for owner in owners:
        attributes.pop((owner.__name__, "__slotnames__"), None)  # copyreg's own cache: put there by the first copy
    named = {name: getattr(torch, name) for name in ("set_num_threads", "set_anomaly_enabled", "save", "compile")}
    flags = {
        "threads": torch.get_num_threads(),
        "anomaly": torch.is_anomaly_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "search": torch.backends.cudnn.benchmark,
        "collector": (gc.isenabled(), gc.get_freeze_count() > SET_ASIDE),
        "denormal": float(torch.tensor(2.0**-126) * 0.5) > 0,
        "pin": worker.pin_memory.pin_memory,
    }
    return attributes | named | flags


def under(name, script, times=1):
    """Run a script under a fix; return its results and the hits."""
    with Process(*[(name, CASES[name].settings)] * times) as process:
        results = script()
        hits = [dict(site.hits) for site in process.sites]
        assert not any(site.failure for site in process.sites)
    return results, hits


def equal(name, ours, theirs):
    """Say whether results are as equal as the fix declares."""
    if ALL[name].equivalence is Equivalence.BITWISE:
        return same(ours, theirs)
    pairs = zip(_leaves(ours), _leaves(theirs), strict=True)
    return all(torch.allclose(one, other, rtol=1e-4, atol=1e-6, equal_nan=True) for one, other in pairs)


def _leaves(value):
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _leaves(item)]
    return [torch.as_tensor(value, dtype=torch.float64)]


# -- the table ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ON_REQUEST_OR_HERE)
@pytest.mark.few(4)
@pytest.mark.slow
def test_a_fix_acts_and_leaves_results_as_equal_as_it_says(name, monkeypatch):
    case = CASES[name]
    for variable, value in find_fix(name).environment.items():
        monkeypatch.setenv(variable, value)
    plain = case.script()
    ours, (hits,) = under(name, case.script)
    assert equal(name, ours, plain)
    if case.cuda and not torch.cuda.is_available():
        assert hits == {}
    else:
        assert sum(hits.values()) > 0


@pytest.mark.parametrize("name", ON_REQUEST_OR_HERE)
@pytest.mark.few(4)
@pytest.mark.slow
def test_a_fix_put_in_place_twice_changes_nothing_more(name):
    plain = CASES[name].script()
    ours, _ = under(name, CASES[name].script, times=2)
    assert equal(name, ours, plain)


@pytest.mark.parametrize("name", ON_REQUEST_OR_HERE)
@pytest.mark.few(5)
@pytest.mark.slow
def test_every_attribute_and_flag_is_put_back(name):
    before = state()
    under(name, CASES[name].script)
    after = state()
    assert [key for key in before if before[key] is not after.get(key) and before[key] != after.get(key)] == []
    assert before.keys() == after.keys()


@pytest.mark.parametrize("name", ON_REQUEST_OR_HERE)
@pytest.mark.few(5)
@pytest.mark.slow
def test_a_fix_that_is_switched_off_lets_the_script_run_as_it_is(name):
    case = CASES[name]
    plain = case.script()
    with Process((name, case.settings), on=False) as process:
        ours = case.script()
        assert process.site.hits == {}
    assert same(ours, plain)


@pytest.mark.parametrize("name", [name for name in ON_REQUEST_OR_HERE if CASES[name].already])
@pytest.mark.slow
def test_a_script_that_does_it_already_gets_no_hit(name):
    with CASES[name].before():
        _, (hits,) = under(name, CASES[name].already)
    assert hits == {}


@pytest.mark.parametrize(
    ("without", "acting"),
    [
        (set(), {"cached-input"}),
        ({"cached-input"}, {"device-resident-input"}),
        ({"cached-input", "device-resident-input"}, {"compiled-input"}),
        ({"cached-input", "device-resident-input", "compiled-input"}, {"loader-workers", "device-prefetch"}),
    ],
)
@pytest.mark.slow
def test_all_fixes_of_the_table_together_leave_results_equal(without, acting, tmp_path):
    bitwise = [name for name in ON_REQUEST_OR_HERE if ALL[name].equivalence is Equivalence.BITWISE]
    settings = {name: CASES[name].settings for name in bitwise} | {"cached-input": {"folder": str(tmp_path)}}
    plain = load_and_copy()
    with Process(*[(name, settings[name]) for name in bitwise if name not in without]) as process:
        ours = load_and_copy()
        hits = {site.selection.fix: site.hits for site in process.sites if site.hits}
    assert same(ours, plain)
    assert acting <= hits.keys()


# -- every fix of the catalog ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fix", ALL.values(), ids=ALL)
def test_the_page_has_one_sentence_and_the_four_headings_with_text_under_each(fix):
    assert re.fullmatch(r"[A-Z`].*[.]", fix.summary)
    assert re.findall(r"^## .*$", fix.page, re.MULTILINE) == HEADINGS
    assert all(part.strip() for part in re.split(r"^## .*$", fix.page, flags=re.MULTILINE))
    assert fix.equivalence.value in fix.page


@pytest.mark.parametrize("fix", ALL.values(), ids=ALL)
def test_the_file_is_named_after_the_fix(fix):
    assert fix.patch.__module__ == f"flatout.fixes.{fix.name.replace('-', '_')}"


@pytest.mark.parametrize("fix", ALL.values(), ids=ALL)
def test_fixes_and_rules_name_each_other(fix):
    named = {}  # code -> fixes that its findings offer
    for rule in catalog():
        findings = [rule.check(one.run, one.breakdown, one.headroom) for one in rule.fires_on]
        named[rule.code] = {name for finding in findings for name in finding.fixes}
    assert {code for code, names in named.items() if fix.name in names} <= set(fix.addresses)
    assert [code for code in fix.addresses if not (fix.name in named[code] or fix.on_request)] == []


@pytest.mark.parametrize("fix", ALL.values(), ids=ALL)
def test_the_choices_are_few_plain_and_accepted_by_the_patch(fix):
    loader = LoaderFacts(is_training=True, sample_s=0.01, sample_cpu_s=0.01, fetches=5, num_workers=0, epochs_started=2)
    model = ModelFacts(dtypes=("float32",), module_types={"Conv2d": 3})
    for kind in ("cpu", "cuda"):
        machine = Environment(device_kind=kind, num_cpus=8, torch_threads=8)
        run = Run(header=Header(script="train.py"), environment=machine, loaders=(loader,), models=(model,))
        choices = fix.choices(run)
        assert len(choices) <= 4
        for settings in choices:
            assert json.loads(json.dumps(dict(settings))) == settings
            inspect.signature(fix.patch).bind(None, **settings)
        if kind == "cpu" and fix.name in CASES and CASES[fix.name].cuda:
            assert choices == ()


@pytest.mark.parametrize("fix", ALL.values(), ids=ALL)
def test_a_fix_acts_through_its_site_only(fix):
    tree = ast.parse(inspect.getsource(inspect.getmodule(fix.patch)))
    names = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert not names & {"setattr", "exec", "eval"}


def test_a_setting_that_a_fix_does_not_know_is_its_failure_and_nobody_elses():
    process = Process()
    with process, contextlib.suppress(AssertionError):
        process.selections = (("tf32", {"nonsense": 1}),)
        process.__enter__()
    assert process.sites[0].failure.startswith("TypeError")
