"""What is known not to depend on padding, and what is not: one line of `forward` at a time."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.cures.forward.padded_rows import PaddedRows, Unproven

NET = """\
import torch
from torch import nn
from torch.nn import functional as F
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.kinds = nn.Embedding(9, 8), nn.Embedding(2, 8, max_norm=1.0)
        self.places = nn.Embedding(50, 8)
        self.deep = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, dropout=0.0, batch_first=True), 2)
        self.over_time = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, dropout=0.0), 2)
        self.mlp = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8))
        self.drop, self.norm = nn.Dropout(0.1), nn.BatchNorm1d(8)
        self.inplace = nn.ReLU(inplace=True)
        self.row, self.cube = nn.Parameter(0.02 * torch.randn(40, 8)), nn.Parameter(torch.zeros(1, 40, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.read = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    def forward(self, words, pad, mask, y=None):
"""


def proof(folder, *lines):
    source_text = NET + "".join(f"        {line}\n" for line in lines)
    project = project_of(folder, train=source_text)
    forward = next(
        each for each in ast.walk(project.script.tree) if isinstance(each, ast.FunctionDef) and each.name == "forward"
    )
    return PaddedRows(project, project.script, forward)


H = "h = self.table(words)"


@pytest.mark.parametrize(
    "lines",
    [
        (H, "return h[:, 0]"),
        (H, "h = self.mlp(F.relu(h))", "return self.mlp(h[:, 0])"),
        (H, "h = h + self.places(torch.arange(words.size(1), device=words.device))", "return h[:, 0, :]"),
        (H, "h = h + self.row[: words.shape[1]]", "return self.read(h, src_key_padding_mask=pad)[:, 0]"),
        ("return (self.table(words) + self.cube[:, : words.size(1)])[:, 0]",),
        (H, "m = mask[:, :, None].float()", "return (h * m).sum(1) / m.sum(1).clamp(min=1)"),
        (H, "return self.deep(h, src_key_padding_mask=pad)[:, 0]"),
        (H, "return self.deep(h, src_key_padding_mask=~mask.bool())[:, 0]"),
        (H, "return h.masked_fill((words == 0).unsqueeze(-1), -1e9).max(1).values"),
        (H, "return h.masked_fill(~mask.bool()[..., None], float('-inf')).amax(1)"),
        (H, "if y is None:", "    return h[:, 0]", "return F.cross_entropy(h[:, 0], y), h[:, 0]"),
        (H, "return self.norm(self.drop(h[:, 0]))"),
        (H, "return torch.cat([h[:, 0], (h * (words != 0).unsqueeze(2)).sum(1)], dim=1)"),
    ],
)
def test_what_does_not_depend_on_padding(tmp_path, lines):
    found = proof(tmp_path, *lines)
    assert "words" in found.words
    assert found.root == "self"


@pytest.mark.parametrize(
    "lines",
    [
        (H, "return h"),
        (H, "return (h + self.cube[: words.size(1)])[:, 0]"),
        (H, "return (h + self.row[:, : words.size(1)])[:, 0]"),
        (H, "return (h + self.row[: words.size(0)])[:, 0]"),
        (H, "return (h + self.row[1 : words.size(1)])[:, 0]"),
        (H, "return (h + self.row)[:, 0]"),
        (H, "return h.mean(1)"),
        (H, "return h[:, 1]"),
        (H, "return h.sum(1)"),
        (H, "return (h * mask).sum(1)"),
        (H, "return (h * pad.unsqueeze(2)).sum(2)"),
        (H, "return h.masked_fill((words == 0).unsqueeze(-1), -1e3).amax(1)"),
        (H, "return h.masked_fill((words == 0).unsqueeze(-1), 0).amax(1)"),
        (H, "return h[:, 0] * words.size(1)"),
        (H, "return h[:, 0] * len(words)"),
        (H, "return h[:, 0] + torch.rand(1)"),
        (H, "return self.drop(h)[:, 0]"),
        (H, "return self.norm(h)[:, 0]"),
        (H, "return self.inplace(h)[:, 0]"),
        (H, "return self.kinds(words)[:, 0]"),
        (H, "return self.deep(h)[:, 0]"),
        (H, "return self.deep(h, mask)[:, 0]"),
        (H, "return self.over_time(h, src_key_padding_mask=pad)[:, 0]"),
        (H, "h += 1", "return h[:, 0]"),
        (H, "if self.training:", "    print(1)", "return h[:, 0]"),
        (H, "return h[:, 0] + words"),
        (H, "words = words + 1", "return h[:, 0]"),
        (H, "return {'h': h[:, 0]}"),
        (H, "y = h[:, 0]"),
        (H,),
    ],
)
def test_what_may_depend_on_padding(tmp_path, lines):
    with pytest.raises(Unproven):
        proof(tmp_path, *lines)


def test_masks_and_arguments_are_collected(tmp_path):
    found = proof(tmp_path, H, "h = self.deep(h, src_key_padding_mask=pad)", "return (h * mask.unsqueeze(2)).sum(1)")
    assert (found.words, found.flags) == (["words", "pad", "mask"], ["pad"])
    assert found.counts == ["~pad", "mask != 0"]
