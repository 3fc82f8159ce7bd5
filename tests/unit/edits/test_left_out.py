"""What is not sure is left out, with the reason; the source stays as it is."""

import pytest
from tests.unit.edits.scripts import SCRIPT, one, written

from flatout.fixes.core.catalog import fixes
from flatout.fixes.core.edit import Unwritten
from flatout.schema.facts import Frame, LoaderFacts, SamplePrefix

LOADER = "loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.randn(8, 2)), batch_size=2)"
RANDOM = """
class Noisy(TensorDataset):
    def __getitem__(self, index):
        return self.tensors[0][index] + torch.randn(4), self.tensors[1][index]

"""
STREAM = "\nclass Stream(torch.utils.data.IterableDataset):\n    pass\n\n"

LEFT = [
    ("loader-workers", {"workers": 2}, ("batch_size=2)", "num_workers=args.workers)"), "args.workers"),
    ("loader-workers", {"workers": 2}, ("batch_size=2)", "**options)"), "**kwargs"),
    ("loader-workers", {"workers": 2}, ("\nmodel", RANDOM + "\nmodel"), "randn is called where samples are made"),
    ("loader-workers", {"workers": 2}, ("\nmodel", STREAM + "\nmodel"), "iterable data set"),
    ("loader-workers", {"workers": 2}, ("in loader:", "in zip(loader, loader):"), "zip"),
    ("loader-workers", {"workers": 2}, ("batch_size=2)", "sampler=Mine())"), "sampler is Mine()"),
    ("loader-workers", {"workers": 0}, ("batch_size=2)", "num_workers=2, prefetch_factor=4)"), "prefetch_factor"),
    ("loader-workers", {"workers": 2}, (LOADER, "loader = make()"), "no call of torch's DataLoader"),
    ("worker-threads", {}, ("", ""), "has no workers"),
    ("worker-threads", {}, ("batch_size=2)", "num_workers=2, worker_init_fn=seed)"), "worker_init_fn is given as seed"),
    ("compiled-input", {}, ("    loss.backward()\n", ""), "no backward pass runs"),
    ("fused-optimizer", {"implementation": "fused"}, ("optim.SGD", "optim.RMSprop"), "RMSprop has no fused"),
    ("fused-optimizer", {"implementation": "fused"}, ("lr=0.1)", "lr=0.1, foreach=True)"), "foreach already"),
    ("fused-optimizer", {"implementation": "fused"}, ("lr=0.1)", "lr=0.1, fused=args.fused)"), "args.fused"),
    ("fused-optimizer", {"implementation": "fused"}, ("lr=0.1)", "**settings)"), "**kwargs"),
    ("fused-optimizer", {"implementation": "fused"}, ("lr=0.1)", "lr=0.1, capturable=True)"), "capturable"),
    ("fused-optimizer", {"implementation": "fused"}, ("torch.optim.SGD(", "getattr(torch.optim, name)("), "computed"),
    ("cpu-threads", {"threads": 2}, ("\nmodel", "\ntorch.set_num_threads(args.threads)\nmodel"), "not given a number"),
    ("tf32", {}, ("\nmodel", "\ntorch.backends.cuda.matmul.allow_tf32 = False\nmodel"), "allow_tf32"),
    ("cudnn-search", {}, ("\nmodel", "\ntorch.use_deterministic_algorithms(True)\nmodel"), "deterministic"),
    ("allocator", {}, ("\nmodel", "\nos = 3\nmodel"), "does not show where"),
    ("channels-last", {}, ("F.mse_loss(out, y)", "F.mse_loss(out.view(-1), y)"), ".view"),
    ("channels-last", {}, ("model(x)", "model.forward(x)"), "is not called as model(...)"),
    ("channels-last", {}, ("model.parameters()", "[*model.parameters(), *other.parameters()]"), "one model"),
    ("compiled-module", {"mode": "default"}, ("model(x)", "torch.compile(model)(x)"), "torch.compile"),
    ("compiled-module", {"mode": "reduce-overhead"}, ("", ""), "CUDA graphs"),
    ("compiled-module", {"mode": "default"}, ("model = nn.Linear(4, 2)", "(model,) = build()"), "no model"),
    ("bf16-autocast", {}, ("F.mse_loss(out, y)", "F.mse_loss(out[0], y)"), "something other than one tensor"),
    ("bf16-autocast", {}, ("F.mse_loss(out, y)", "criterion(out, y)"), "something other than one tensor"),
    ("bf16-autocast", {}, ("import torch\n", "import torch\nfrom torch import autocast\n"), "mentions autocast"),
    ("anomaly-off", {}, ("", ""), "no request"),
    ("anomaly-off", {}, ("\nmodel", "\ntorch.autograd.set_detect_anomaly(args.debug)\nmodel"), "args.debug"),
]


@pytest.mark.parametrize(("fix", "settings", "change", "reason"), LEFT)
def test_what_is_not_sure_is_left_out_with_the_reason(tmp_path, fix, settings, change, reason):
    text = SCRIPT.replace(*change) if change[0] else SCRIPT
    assert text != SCRIPT or not change[0]
    after, outcome = one(tmp_path, fix, text, **settings)
    assert after == text
    assert outcome.changed == outcome.there == 0
    assert reason in " ".join(outcome.left)


@pytest.mark.parametrize(
    "fix", [each for each in fixes() if isinstance(each.edit[0], Unwritten)], ids=lambda fix: fix.name
)
def test_a_fix_that_is_no_line_of_a_script_says_why(tmp_path, fix):
    after, outcome = one(tmp_path, fix.name, SCRIPT)
    assert after == SCRIPT
    assert outcome.left == (fix.edit[0].reason,)


def test_every_fix_says_how_it_is_written_or_why_not():
    assert [fix.name for fix in fixes() if not fix.edit] == []


def test_both_halves_of_a_split_are_written_or_none(tmp_path):
    text = SCRIPT.replace("batch_size=2)", "num_workers=args.workers)")
    after, outcome = one(tmp_path, "core-split", text, workers=1, threads=1)
    assert after == text
    assert outcome.changed == 0


@pytest.mark.parametrize("order", [1, -1])
def test_fused_code_and_weights_that_lie_channels_last_are_not_written_together(tmp_path, order):
    chosen = [("channels-last", {}), ("fused-optimizer", {"implementation": "fused"})][::order]
    files, (first, second) = written(tmp_path, dict(chosen), train=SCRIPT)
    assert (b"fused" in files["train"]) != (b"channels_last" in files["train"])
    assert (first.changed, second.changed) == (1, 0)
    assert "mix" in second.left[0]


def test_workers_that_would_stay_are_said_to_be_left_out(tmp_path):
    after, outcome = one(tmp_path, "loader-workers", SCRIPT, workers=2, persistent=True)
    assert "persistent" not in after
    assert "shuffled differently" in outcome.left[0]


@pytest.mark.parametrize(
    ("settings", "num_batches", "step_s", "is_written"),
    [
        ({"workers": 2, "persistent": True}, 10, 0.002, False),  # 0.02 s, and 0.032 s for the workers
        ({"workers": 2, "persistent": True}, 300, 0.002, False),  # 0.6 s, of which that is 5.3%
        ({"workers": 2, "persistent": True}, 330, 0.002, True),  # 4.8%
        ({"workers": 1, "persistent": True}, 300, 0.002, True),
        ({"workers": 2, "persistent": False}, 10, 0.002, True),  # the recipe begins them anew, too
        ({"workers": 2, "persistent": True}, 10, 0.0, True),  # not known
        ({"workers": 2, "persistent": True}, 0, 0.002, True),
    ],
)
def test_workers_are_left_out_where_starting_them_is_long_beside_a_pass(
    tmp_path, settings, num_batches, step_s, is_written
):
    place = Frame(str(tmp_path / "train.py"), SCRIPT.splitlines().index(LOADER) + 1, "<module>")
    facts = LoaderFacts(is_training=True, created_at=place, num_batches=num_batches)
    fixes = {"loader-workers": settings}
    files, (outcome,) = written(tmp_path, fixes, train=SCRIPT, recorded=(facts,), step_s=step_s)
    assert (b"num_workers" in files["train"]) == is_written
    assert any("would wait some 0.032 s for 2 new workers" in line for line in outcome.left) != is_written


# -- which loader ---------------------------------------------------------------------------------------------------

TWO = (
    SCRIPT.replace(LOADER, LOADER + "\ntest = DataLoader(data)")
    + "with torch.no_grad():\n    for x in test:\n        model(x)\n"
)


def test_a_loader_for_evaluation_is_left_alone(tmp_path):
    after, outcome = one(tmp_path, "compiled-input", TWO)
    assert after.count("compile_loader") == 1
    assert "test = DataLoader(data)\n" in after
    assert outcome.left == ()


FACTORY = """
import torch
from torch.utils.data import DataLoader

def make(data):
    return DataLoader(data)

def main(model, a, b):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train, test = make(a), make(b)
    for x in train:
        model(x).sum().backward()
    for x in test:
        model(x)
"""


@pytest.mark.parametrize("made", ["return DataLoader(data)", "made = DataLoader(data)\n    return made"])
def test_one_line_that_makes_both_kinds_of_loaders_is_left_alone(tmp_path, made):
    after, outcome = one(tmp_path, "compiled-input", FACTORY.replace("return DataLoader(data)", made))
    assert "compile_loader" not in after
    assert "training loaders and others" in outcome.left[0]


def test_a_recording_tells_what_the_source_does_not(tmp_path):
    def facts(line, training):
        place = Frame(str(tmp_path / "train.py"), line, "<module>")
        return LoaderFacts(is_training=training, created_at=place, prefix=SamplePrefix(checked=2, deterministic=True))

    text = (
        "from torch.utils.data import DataLoader\nfrom somewhere import fit\n"
        "one = DataLoader(a)\nother = DataLoader(b)\nfit(one, other)\n"
    )
    files, (outcome,) = written(tmp_path, {"compiled-input": {}}, train=text)
    assert (files["train"].decode(), outcome.changed) == (text, 0)
    recorded = (facts(3, False), facts(4, True))
    files, (outcome,) = written(tmp_path, {"compiled-input": {}}, train=text, recorded=recorded)
    assert b"other = flatout.compile_loader(DataLoader(b))" in files["train"]
    assert b"one = DataLoader(a)" in files["train"]


def test_of_two_loaders_made_in_one_line_the_one_that_is_walked_to_train_is_meant(tmp_path):
    text = SCRIPT.replace(
        LOADER, LOADER.replace("loader =", "loader, held =") + ", DataLoader(TensorDataset(torch.randn(2)))"
    )
    place = Frame(str(tmp_path / "train.py"), SCRIPT.splitlines().index(LOADER) + 1, "<module>")
    recorded = tuple(LoaderFacts(is_training=each, created_at=place, num_batches=9) for each in (True, False))
    files, (outcome,) = written(tmp_path, {"compiled-input": {}}, train=text, recorded=recorded)
    assert files["train"].count(b"compile_loader(") == 1
    assert b"loader, held = flatout.compile_loader(DataLoader(" in files["train"]
    fixes = {"loader-workers": {"workers": 2, "persistent": True}}
    files, (outcome,) = written(tmp_path, fixes, train=text, recorded=recorded, step_s=0.001)
    assert outcome.changed == 0
    assert any("a pass takes 0.009 s" in line for line in outcome.left)


def test_a_recorded_data_set_without_randomness_may_move_to_workers(tmp_path):
    text = SCRIPT.replace("\nmodel", RANDOM + "\nmodel")
    line = text.splitlines().index(LOADER) + 1
    place = Frame(str(tmp_path / "train.py"), line, "<module>")
    facts = LoaderFacts(is_training=True, created_at=place, prefix=SamplePrefix(checked=2, deterministic=True))
    files, _ = written(tmp_path, {"loader-workers": {"workers": 2}}, train=text, recorded=(facts,))
    assert b"num_workers=2" in files["train"]


# -- what runs elsewhere --------------------------------------------------------------------------------------------

IN_WORKERS = """
def begin(worker):
    torch.set_num_threads(4)


class Rows(TensorDataset):
    def __getitem__(self, index):
        torch.set_num_threads(4)
        return self.tensors[0][index]

"""


def test_threads_of_workers_are_not_those_of_the_training(tmp_path):
    text = SCRIPT.replace("\nmodel", IN_WORKERS + "\nmodel").replace(
        "batch_size=2)", "num_workers=2, worker_init_fn=begin)"
    )
    after, outcome = one(tmp_path, "cpu-threads", text, threads=1)
    assert after.count("torch.set_num_threads(4)") == 2
    assert after.count("torch.set_num_threads(1)\n") == 1
    assert outcome.left == ()


def test_a_loader_whose_attributes_are_set_later_is_not_wrapped(tmp_path):
    text = SCRIPT.replace("for x, y in loader", "loader.collate_fn = mine\nfor x, y in loader")
    after, outcome = one(tmp_path, "compiled-input", text)
    assert after == text
    assert "an attribute of this loader is set later" in outcome.left[0]


VIEWS = """
class Net(nn.Module):
    def __init__(self):
        self.inner = Inner()

class Inner(nn.Module):
    def forward(self, x):
        return x.view(2)

class Loss(nn.Module):
    def forward(self, x):
        return x{view}
"""


@pytest.mark.parametrize(("view", "written"), [("", 1), (".view(3)", 0)])
def test_views_inside_of_the_model_were_tried_and_others_were_not(tmp_path, view, written):
    text = SCRIPT.replace("\nmodel = nn.Linear(4, 2)", VIEWS.format(view=view) + "\nmodel = Net()")
    _, outcome = one(tmp_path, "channels-last", text)
    assert outcome.changed == written
