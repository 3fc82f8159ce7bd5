"""What each fix writes: lines that go (-) and lines that come (+), and every other byte as it was.

Modules: flatout.edits.autocast, flatout.edits.copies, flatout.edits.loaders, flatout.edits.optimizers,
flatout.edits.process_flags, flatout.edits.trained_model.
"""

import difflib

import pytest
from tests.unit.edits.scripts import SCRIPT, one

LOADER = "loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.randn(8, 2)), batch_size=2)"


def changes(before, after):
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return [line for line in lines if line[:3] not in ("---", "+++") and line[:2] != "@@"]


WRITTEN = [
    ("loader-workers", {"workers": 2}, [f"-{LOADER}", f"+{LOADER[:-1]}, num_workers=2)"]),
    (
        "compiled-input",
        {},
        ["+import flatout", f"-{LOADER}", f"+loader = flatout.compile_loader({LOADER.partition(' = ')[2]})"],
    ),
    (
        "cached-input",
        {},
        [
            "+import flatout",
            f"-{LOADER}",
            f'+loader = flatout.compile_loader({LOADER.partition(" = ")[2]}, folder=".flatout/cache")',
        ],
    ),
    ("cpu-threads", {"threads": 3}, ["+", "+torch.set_num_threads(3)"]),
    ("core-split", {"workers": 1, "threads": 1}, [
        "+torch.set_num_threads(1)", "+", f"-{LOADER}", f"+{LOADER[:-1]}, num_workers=1)",
    ]),
    ("tf32", {}, ["+", '+torch.set_float32_matmul_precision("high")']),
    ("cudnn-search", {}, ["+", "+torch.backends.cudnn.benchmark = True"]),
    ("denormals", {}, ["+", "+torch.set_flush_denormal(True)"]),
    ("gc-control", {}, ["+import flatout", "+", "+flatout.collect_rarely()"]),
    ("one-pass-optimizer", {}, ["+import flatout", "+", "+flatout.one_pass_optimizers()"]),
    ("allocator", {}, [
        "+import os", "+", '+os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")',
    ]),
    ("channels-last", {}, ["+model.to(memory_format=torch.channels_last)"]),
    ("compiled-module", {"mode": "default"}, ['+model.compile(dynamic=False, options={"fallback_random": True})']),
    (
        "bf16-autocast",
        {},
        [
            "-    out = model(x)",
            "+    with torch.autocast("
            "next(model.parameters()).device.type, dtype=torch.bfloat16, cache_enabled=False):",
            "+        out = model(x)",
            "+    out = out.float()",
        ],
    ),
    ("fused-optimizer", {"implementation": "fused"}, [
        "-optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        "+optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)",
    ]),
    ("fused-optimizer", {"implementation": "foreach"}, [
        "-optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        "+optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("fix", "settings", "expected"), WRITTEN, ids=lambda each: str(each)[:24])
def test_a_fix_is_written_as_its_lines_and_no_others(tmp_path, fix, settings, expected):
    after, outcome = one(tmp_path, fix, SCRIPT, **settings)
    assert changes(SCRIPT, after) == expected
    assert outcome.changed >= 1
    assert outcome.left == ()


@pytest.mark.parametrize(("fix", "settings", "expected"), WRITTEN, ids=lambda each: str(each)[:24])
def test_what_is_written_already_is_not_written_again(tmp_path, fix, settings, expected):
    after, _ = one(tmp_path, fix, SCRIPT, **settings)
    again, outcome = one(tmp_path, fix, after, **settings)
    assert again == after
    assert (outcome.changed, outcome.left) == (0, ())
    assert outcome.there >= 1


CHANGED = [
    ("loader-workers", {"workers": 2}, LOADER[:-1] + ", num_workers=0)", LOADER[:-1] + ", num_workers=2)"),
    ("loader-workers", {"workers": 2}, LOADER[:-1] + ", num_workers=4)", LOADER[:-1] + ", num_workers=4)"),
    ("loader-workers", {"workers": 0}, LOADER[:-1] + ", num_workers=4)", LOADER[:-1] + ", num_workers=0)"),
    (
        "loader-workers",
        {"workers": 2},
        "loader = DataLoader(TensorDataset(x, y), 2, True, None, None, 0)",
        "loader = DataLoader(TensorDataset(x, y), 2, True, None, None, 2)",
    ),
    (
        "loader-workers",
        {"workers": 2},
        "loader = DataLoader(\n    data,\n    batch_size=2,  # small\n)",
        "loader = DataLoader(\n    data,\n    batch_size=2,  # small\n    num_workers=2,\n)",
    ),
    (
        "loader-workers",
        {"workers": 2},
        "loader = DataLoader(\n    data,\n    batch_size=2  # small\n)",
        "loader = DataLoader(\n    data,\n    batch_size=2,  # small\n    num_workers=2\n)",
    ),
    (
        "loader-workers",
        {"workers": 2},
        "loader = DataLoader(data,\n                    batch_size=2)",
        "loader = DataLoader(data,\n                    batch_size=2,\n                    num_workers=2)",
    ),
    (
        "worker-threads",
        {},
        "loader = DataLoader(data, num_workers=2)",
        "loader = DataLoader(data, num_workers=2, worker_init_fn=flatout.use_one_thread)",
    ),
]


@pytest.mark.parametrize(("fix", "settings", "before", "after"), CHANGED)
def test_the_call_of_a_loader_keeps_its_form(tmp_path, fix, settings, before, after):
    text, outcome = one(tmp_path, fix, SCRIPT.replace(LOADER, before), **settings)
    assert after in text
    assert outcome.left == ()


def test_batches_are_pinned_and_copied_without_waiting(tmp_path):
    text = SCRIPT.replace("    optimizer.zero_grad()", "    x, y = x.to(device), y.cuda()\n    optimizer.zero_grad()")
    after, outcome = one(tmp_path, "pinned-copy", text)
    assert "batch_size=2, pin_memory=True)" in after
    assert "x, y = x.to(device, non_blocking=True), y.cuda(non_blocking=True)" in after
    assert outcome.changed == 3


@pytest.mark.parametrize(
    "copied", ["x.to(torch.float64)", "x.to(device, torch.half)", "x.to(dtype=kind)", "w.to(device)"]
)
def test_what_is_no_copy_of_a_batch_stays(tmp_path, copied):
    text = SCRIPT.replace("    optimizer.zero_grad()", f"    x = {copied}\n    optimizer.zero_grad()")
    after, outcome = one(tmp_path, "pinned-copy", text)
    assert after == text
    assert "no .to(device)" in outcome.left[0]


def test_the_items_of_a_batch_are_copied_without_waiting(tmp_path):
    text = SCRIPT.replace(
        "for x, y in loader:", "for batch in loader:\n    batch = {k: v.to(device) for k, v in batch.items()}"
    )
    after, _ = one(tmp_path, "pinned-copy", text)
    assert "v.to(device, non_blocking=True)" in after


ANOMALY = [
    ("torch.autograd.set_detect_anomaly(True)\n", ""),
    (
        "# look for it\ntorch.autograd.set_detect_anomaly(True)\n",
        "# look for it\ntorch.autograd.set_detect_anomaly(False)\n",
    ),
    ("with torch.autograd.detect_anomaly():\n    pass\n", "with torch.autograd.set_detect_anomaly(False):\n    pass\n"),
    (
        "with torch.autograd.set_detect_anomaly(True):\n    pass\n",
        "with torch.autograd.set_detect_anomaly(False):\n    pass\n",
    ),
    (
        "if torch:\n    torch.autograd.set_detect_anomaly(True)\n",
        "if torch:\n    torch.autograd.set_detect_anomaly(False)\n",
    ),
]


@pytest.mark.parametrize(("before", "after"), ANOMALY)
def test_anomaly_detection_is_taken_out(tmp_path, before, after):
    text, outcome = one(tmp_path, "anomaly-off", SCRIPT + before)
    assert text == SCRIPT + after
    assert (outcome.changed, outcome.left) == (1, ())


def test_a_number_of_threads_that_is_there_is_changed_in_its_place(tmp_path):
    text, _ = one(tmp_path, "cpu-threads", SCRIPT + "torch.set_num_threads(8)\n", threads=2)
    assert text == SCRIPT + "torch.set_num_threads(2)\n"


def test_the_model_inside_a_loss_is_taken_out_for_autocast(tmp_path):
    text = SCRIPT.replace("    out = model(x)\n    loss = F.mse_loss(out, y)", "    loss = F.mse_loss(model(x), y) / 2")
    after, outcome = one(tmp_path, "bf16-autocast", text)
    assert "        outputs = model(x)\n    loss = F.mse_loss(outputs.float(), y) / 2\n" in after
    assert outcome.left == ()


@pytest.mark.parametrize(
    ("loss", "written"),
    [
        ("F.mse_loss(model(x).squeeze(1), y)", "F.mse_loss(outputs.float().squeeze(1), y)"),
        ("(model(x) - y).square().mean()", "(outputs.float() - y).square().mean()"),
        ("criterion(model(x).softmax(1), y)", "criterion(outputs.float().softmax(1), y)"),
        ("sum(model(x) / 2)", "sum(outputs.float() / 2)"),
    ],
)
def test_what_only_tensors_can_do_shows_that_the_model_gives_one(tmp_path, loss, written):
    text = SCRIPT.replace("    out = model(x)\n    loss = F.mse_loss(out, y)", f"    loss = {loss}")
    after, outcome = one(tmp_path, "bf16-autocast", text)
    assert f"        outputs = model(x)\n    loss = {written}\n" in after
    assert outcome.left == ()


@pytest.mark.parametrize("loss", ["weigh()(model(x).squeeze(1), y)", "y - model(x)", "criterion(y, model(x).mean())"])
def test_what_is_worked_out_before_the_model_keeps_it_where_it_is(tmp_path, loss):
    text = SCRIPT.replace("    out = model(x)\n    loss = F.mse_loss(out, y)", f"    loss = {loss}")
    after, outcome = one(tmp_path, "bf16-autocast", text)
    assert after == text
    assert outcome.left


MADE = "model = nn.Linear(4, 2)\n"
GIVEN = "(model.parameters(), lr=0.1)"


@pytest.mark.parametrize(
    ("before", "after", "behind"),
    [
        (MADE, "def build():\n    return nn.Linear(4, 2)\n\n\nmodel = build()\n", "model = build()"),
        (MADE, "start, model = 0, nn.Linear(4, 2)\n", "start, model = 0, nn.Linear(4, 2)"),
        (MADE, f"{MADE}model = model.to('cpu')\n", "model = nn.Linear(4, 2)"),
        (GIVEN, "([*model.parameters(), weight], lr=0.1)", "model = nn.Linear(4, 2)"),
        (GIVEN, "([p for n, p in model.named_parameters() if n], lr=0.1)", "model = nn.Linear(4, 2)"),
    ],
)
def test_the_model_is_found_however_it_is_made_and_handed_to_the_optimizer(tmp_path, before, after, behind):
    text, outcome = one(tmp_path, "channels-last", SCRIPT.replace(before, after))
    assert f"\n{behind}\nmodel.to(memory_format=torch.channels_last)\n" in text
    assert outcome.left == ()


def test_a_model_that_is_made_under_two_names_is_left(tmp_path):
    made = "def build():\n    return nn.Linear(4, 2)\n\n\nmodel = build()\nother = build()\n"
    text, outcome = one(tmp_path, "channels-last", SCRIPT.replace(MADE, made))
    assert "channels_last" not in text
    assert "not made by an assignment of its own" in outcome.left[0]


def test_switches_stand_together_behind_the_imports(tmp_path):
    text = SCRIPT
    for fix in ("cpu-threads", "tf32", "denormals"):
        text, _ = one(tmp_path, fix, text, **({"threads": 1} if fix == "cpu-threads" else {}))
    assert (
        'import DataLoader, TensorDataset\n\ntorch.set_num_threads(1)\ntorch.set_float32_matmul_precision("high")\n'
        "torch.set_flush_denormal(True)\n\nmodel"
    ) in text


@pytest.mark.parametrize("code", ["retain_graph=True", "create_graph=True"])
def test_a_model_is_not_compiled_where_the_source_walks_a_graph_twice(tmp_path, code):
    twice = SCRIPT.replace("loss.backward()", f"loss.backward({code})")
    assert twice != SCRIPT
    after, outcome = one(tmp_path, "compiled-module", twice, mode="default")
    assert after == twice
    assert "walked or differentiated twice" in outcome.left[0]
