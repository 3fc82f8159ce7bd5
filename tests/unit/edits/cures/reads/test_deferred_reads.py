"""Values read from the device in each step, kept there and read where they are used: the same to the bit."""

import pytest
from tests.unit.edits.scripts import edited, same_results

TRAINS = """\
import math
import torch
import numpy as np
def train(batches):
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total, seen, shown = 0.0, [], []
    total = 0.0
    seen = []
    for step, (x, y) in enumerate(batches):
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()  # <<
        if step % 7 == 6:
            shown.append((step, total / 7))
            total = 0.0
    return model.weight.detach(), torch.tensor([total]), torch.tensor(shown), torch.tensor(seen)
made = torch.Generator().manual_seed(1)
data = [(torch.randn(4, 3, generator=made), torch.randn(4, 1, generator=made)) for _ in range(150)]
found = list(train(data))
"""
LINE = "        total += loss.item()  # <<\n"


def made(folder, text):
    return edited(folder, "read-later", text)


def test_a_sum_is_made_of_kept_values_where_it_is_read(tmp_path):
    text = TRAINS.replace("total, seen, shown = 0.0, [], []", "shown = []")
    after, left = made(tmp_path, text)
    assert left == ""
    like = "(loss.shape, loss.dtype, loss.device,)"
    assert f"        if type(loss) is torch.Tensor and reads_like == {like}:\n            reads.append(loss.d" in after
    assert "            reads.append(loss.detach().clone())\n        else:\n            for read in reads:\n" in after
    assert "            reads.clear()\n            total += loss.item()\n            reads_like = " in after
    assert "        if len(reads) == 64:\n" in after
    assert "        if step % 7 == 6:\n            for read in reads:\n                total += read.item()\n" in after
    assert "    for read in reads:\n        total += read.item()\n    reads.clear()\n    return" in after
    same_results(text, after, "found")


@pytest.mark.parametrize(
    "line",
    [
        "total += loss.item()",
        "total += loss.item() * x.size(0)",
        "total += len(x) * loss.detach().cpu().item() / 3",
        "total -= -round(loss.item(), 5)",
        "total += math.exp(min(loss.item(), 2.0))",
        "total += step * loss.item()",
        "total += (loss > 0.5).sum().item()",
        "total += (x.cpu().argmax(1) == y.cpu()).sum().item()",
        "total += (loss.detach().cpu() * y).sum().item()",
        "seen.append(loss.item())",
        "seen.append([loss.item(), step, x.shape[0]])",
        "seen.append(float(loss.detach().cpu().numpy()))",
        "seen.append(model.weight.norm().item())",
        "seen.append(loss.detach().cpu())",
        "seen.append(np.sqrt(loss.item()))",
        "value = loss.item()",
        "value = loss.item()\n        total += value\n        seen.append(value)",
        "value = loss.item()\n        x = x[:2]\n        total += value",
        "if step % 2 == 0:\n            total += loss.item()",
        "with torch.no_grad():\n            total += loss.item()",
    ],
)
def test_what_comes_of_it_is_the_same_to_the_bit(tmp_path, line):
    text = TRAINS.replace("    total, seen, shown = 0.0, [], []\n", "    shown = []\n")
    first, *rest = line.split("\n")
    if rest and first.startswith(("if", "with")):
        new = f"        {first}\n{rest[0]}  # <<\n"
    else:
        new = "\n".join([f"        {first}  # <<", *rest]) + "\n"
    text = text.replace(LINE, new)
    after, left = made(tmp_path, text)
    assert left == ""
    assert after.count("reads.clear()") >= 2
    same_results(text.replace("  # <<", ""), after, "found")


def test_a_value_is_read_where_it_is_shown(tmp_path):
    text = TRAINS.replace("    total, seen, shown = 0.0, [], []\n", "    shown = []\n")
    text = text.replace(LINE, "        value = loss.item()  # <<\n").replace("total / 7", "value")
    after, left = made(tmp_path, text)
    assert left == ""
    same_results(text, after, "found")


def test_what_is_written_to_later_is_kept_as_it_was(tmp_path):
    text = TRAINS.replace("    total, seen, shown = 0.0, [], []\n", "    shown, buffer = [], torch.zeros(1)\n")
    text = text.replace(LINE, "        buffer.copy_(loss.detach())\n        seen.append(buffer.item())  # <<\n")
    after, left = made(tmp_path, text)
    assert left == ""
    same_results(text, after, "found")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (LINE, "        print(loss.item())  # <<\n", "the line is not"),
        (LINE, "        total = total + loss.item()  # <<\n", "the line is not"),
        (LINE, "        model.total += loss.item()  # <<\n", "the line is not"),
        (LINE, "        total += loss.item() * optimizer.lr  # <<\n", "may be another one later"),
        (LINE, "        total += log(loss.item())  # <<\n", "may do more than compute"),
        (LINE, "        total += loss.item() if step else 0  # <<\n", "more than a value"),
        (LINE, "        seen.append(loss.cpu())  # <<\n", "with its graph"),
        (LINE, LINE + "        if total > 9: break\n", "total is read in each turn"),
        (LINE, LINE + "        print(total)\n", "total is read in each turn"),
        ("if step % 7 == 6:", "if total % 7 == 6:", "total is read in each turn"),
        ("            total = 0.0\n", "            return total\n", "may be left before its end"),
        ("            total = 0.0\n", "            yield total\n", "may be left before its end"),
        ("    total = 0.0\n    seen", "    total = start()\n    seen", "not made in this function"),
        ("    seen = []\n", "    seen = []\n    def look(): return total\n", "a function that the loop may call"),
        ("    seen = []\n", "    global total\n", "a name of other functions"),
        ("    return model", "    else:\n        pass\n    return model", "stands in no loop"),
        (
            LINE,
            "        try:\n            total += loss.item()  # <<\n        except RuntimeError: pass\n",
            "may be caught",
        ),
        (LINE, "        value = loss.item()  # <<\n        if value > 3: break\n", "value is read in each turn"),
        (
            LINE,
            "        value = loss.item()  # <<\n        x = x[:2]\n        total += value * len(x)\n",
            "another value where the first line stands",
        ),
    ],
)
def test_what_somebody_may_see_before_is_left(tmp_path, old, new, reason):
    text = TRAINS.replace("    total, seen, shown = 0.0, [], []\n", "    shown = []\n").replace(old, new, 1)
    after, left = made(tmp_path, text)
    assert after == ""
    assert reason in left


@pytest.mark.parametrize("use", ["model.seen = seen", "keep(seen)", "other = {'seen': seen}"])
def test_a_list_that_somebody_else_may_hold_is_left(tmp_path, use):
    text = TRAINS.replace("    total, seen, shown = 0.0, [], []\n", "    shown = []\n")
    text = text.replace(LINE, "        seen.append(loss.item())  # <<\n").replace(
        "    seen = []\n", f"    seen = []\n    {use}\n"
    )
    after, left = made(tmp_path, text)
    assert after == ""
    assert "may keep it" in left


def test_a_loop_of_epochs_reads_behind_each(tmp_path):
    text = """\
import torch
history = {"loss": []}
for epoch in range(3):
    for step in range(100):
        loss = torch.randn(4).sum()
        history["loss"].append(loss.item())  # <<
    print(sum(history["loss"]) / len(history["loss"]))
found = [torch.tensor(history["loss"])]
"""
    after, left = made(tmp_path, text)
    assert left == ""
    assert "    reads.clear()\n    print(sum" in after
    same_results(text, after, "found")


KINDS = """\
import math, contextlib
import torch
import numpy as np
class Meter:
    def item(self):
        return 4.5
def run(values, limit=3):
    shown = []
    sizes = []
    total = 0.0
    for turn, value in enumerate(values):
        total += value.item()  # <<
        shown.append(turn)
    return total
def tried(values):
    try:
        return [torch.tensor(float(run(values)))]
    except (RuntimeError, AttributeError) as error:
        return [torch.zeros(len(type(error).__name__))]
one = torch.tensor(1.5)
"""


@pytest.mark.parametrize(
    "values",
    [
        "[one, np.float32(2.5), one, one]",
        "[Meter(), one, one, Meter()]",
        "[one, one, one.double(), one.half(), one.view(1), one.view(1, 1), torch.tensor(True)]",
        "[one, one, 3.0]",
        "[one, one, torch.ones(3)]",
        "[torch.nn.Parameter(one), one]",
    ],
)
def test_what_is_read_may_be_anything_that_has_the_method(tmp_path, values):
    text = f"{KINDS}found = tried({values})\n"
    after, left = made(tmp_path, text)
    assert left == ""
    same_results(text, after, "found")


def test_an_error_comes_before_what_the_script_does_next(tmp_path):
    text = (
        KINDS.replace("value.item()", "(value.cpu() + value[:2].cpu() * 0).sum().item()")
        + """
done = []
def stream():
    for size in (2, 2, 2, 5, 2, 2):
        done.append(size)
        yield torch.ones(size)
tried(stream())
found = [torch.tensor(done)]
"""
    )
    after, left = made(tmp_path, text)
    assert left == ""
    same_results(text, after, "found")


@pytest.mark.parametrize("read", ["weight.detach().cpu()", "weight.detach().numpy()", "weight.cpu()"])
def test_memory_of_the_cpu_stays_shared_with_what_was_added(tmp_path, read):
    text = f"""\
import torch
@torch.no_grad()
def follow(weight):
    history = []
    for k in range(4):
        weight += k
        history.append({read})  # <<
    return history
found = [torch.as_tensor(each) for each in follow(torch.zeros(2))]
"""
    after, left = made(tmp_path, text)
    assert left == ""
    same_results(text, after, "found")


@pytest.mark.parametrize(
    ("before", "line", "reason"),
    [
        ("", "total += math.exp(value.item())", "may do more than compute"),
        ("", "total += math.log(value.item() + 1)", "may do more than compute"),
        ("", "total += 1 / value.item()", "may fail"),
        ("", "total += 2 ** value.item()", "may fail"),
        ("", "total /= value.item()", "may fail"),
        ("", "total += int(value.item())", "may do more than compute"),
        ("", "total += round(value.item())", "may do more than compute"),
        ("", "sizes.append(np.random.poisson(value.item()))", "may do more than compute"),
        ("", "sizes.append(torch.tensor(value.item()))", "may do more than compute"),
        ("", "sizes.append(value.cpu().clamp_(0).sum().item())", "may do more than compute"),
        ("put = sizes.append", "sizes.append(value.item())", "may keep it"),
        ("sizes = {'a': []}; inner = sizes.get('a')", "sizes['a'].append(value.item())", "may keep it"),
        ("sizes = {'a': []}; inner = sizes[limit]", "sizes['a'].append(value.item())", "may keep it"),
        ("sizes = dict(a=shown)", "sizes['a'].append(value.item())", "not made in this function"),
        ("np.seterr(all='raise')", "sizes.append(np.log(value.item()))", "may do more than compute"),
        ("later = (total for _ in shown)", "total += value.item()", "read by a generator"),
        ("print(vars())", "total += value.item()", "`vars` may read total"),
    ],
)
def test_what_may_fail_later_or_is_reached_by_other_names_is_left(tmp_path, before, line, reason):
    text = KINDS.replace("    sizes = []\n", f"    sizes = []\n    {before or 'pass'}\n")
    after, left = made(tmp_path, text.replace("total += value.item()", line))
    assert after == ""
    assert reason in left


@pytest.mark.parametrize("around", ["contextlib.suppress(ValueError)", "Meter()", "lock, torch.no_grad()"])
def test_a_context_around_the_loop_that_may_end_errors_is_left(tmp_path, around):
    text = (
        f"{KINDS}with {around}:\n    total = 0\n    for k in range(3):\n"
        f"        total += one.item()  # <<\nprint(total)\n"
    )
    after, left = made(tmp_path, text.replace("value.item()  # <<", "value.item()"))
    assert after == ""
    assert "may end an error" in left


def test_streams_of_the_device_are_left(tmp_path):
    text = KINDS + "side = torch.cuda.Stream()\n"
    assert "what is read later may not be there" in made(tmp_path, text)[1]


@pytest.mark.parametrize(
    ("given", "line"), [("total", "total += value.item()"), ("sizes", "sizes.append(value.item())")]
)
def test_what_may_be_given_to_the_function_is_left(tmp_path, given, line):
    made_here = "total = 0.0" if given == "total" else "sizes = []"
    text = KINDS.replace("limit=3", f"{given}=None").replace(
        f"    {made_here}\n", f"    if not {given}:\n        {made_here}\n"
    )
    after, left = made(tmp_path, text.replace("total += value.item()", line))
    assert after == ""
    assert "may be given to this function" in left or "may keep it" in left
