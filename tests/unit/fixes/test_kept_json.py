"""kept-json in a training that writes its whole history in each step: the same losses, the same files."""

import json
from pathlib import Path

import pytest
import torch
from tests.unit.fixes.training import same_bits, under

from flatout.fixes.kept_json import FIX, choices
from flatout.rules.core.example import example, line
from flatout.schema.phase import Phase


def train(name, steps=60):
    torch.manual_seed(0)
    weight = torch.randn(3, requires_grad=True)
    optimizer, rows, texts = torch.optim.SGD([weight], lr=0.1), [], []
    for step in range(steps):
        loss = (torch.randn(8, 3) @ weight).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows.append({"step": step, "loss": loss.item(), "lr": 0.1})
        with open(name, "w") as file:
            json.dump(rows, file, indent=1)
        texts.append(json.dumps({"rows": rows, "last": step}))
        texts.append(Path(name).read_text())
    return texts, weight.detach()


@pytest.mark.slow
def test_a_training_and_its_files_are_the_same(workdir):
    plain, dump, dumps = train("plain.json"), json.dump, json.dumps
    with under("kept-json") as process:
        assert json.dump is not dump
        ours = train("ours.json")
        assert process.site.hits["written from what was kept"] >= 80
        assert not process.site.failure
    assert json.dump is dump and json.dumps is dumps
    assert ours[0] == plain[0] and same_bits([ours[1]], [plain[1]])


def recorded(tmp_path, text):
    (tmp_path / "train.py").write_text(f"{text}\n")
    return example(step_ms=10, host=5, lines=[line(1.0, (str(tmp_path / "train.py"), 1, "f"), phase=Phase.HOST)]).run


def test_it_is_offered_where_lines_that_write_json_cost_time(tmp_path):
    assert choices(recorded(tmp_path, "json.dump(rows, file)")) == ({},)
    assert "writing JSON" in FIX.unfit(recorded(tmp_path, "x = model(x)"))
