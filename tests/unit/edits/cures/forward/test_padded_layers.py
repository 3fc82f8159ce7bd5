"""Layers and weights as the calls that make them tell."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.cures.forward.padded_layers import BY_POSITION, OF_ROWS, is_attention, is_by_position, num_dims

HEAD = "import torch\nfrom torch import nn\n"


def read(folder, text):
    project = project_of(folder, train=HEAD + text)
    return project, project.script, project.script.tree.body[-1].value


@pytest.mark.parametrize(
    ("text", "by_position", "of_rows"),
    [
        ("nn.Linear(2, 3)", True, True),
        ("nn.Sequential(nn.LayerNorm(2), nn.GELU())", True, True),
        ("nn.Dropout(0.1)", False, True),
        ("nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))", False, True),
        ("nn.LayerNorm((4, 2))", False, False),
        ("nn.ReLU(inplace=True)", False, False),
        ("nn.ReLU(True)", False, False),
        ("nn.Softmax(1)", False, False),
        ("Own(2)", False, False),
    ],
)
def test_what_computes_each_position_by_itself(tmp_path, text, by_position, of_rows):
    _, source, call = read(tmp_path, text)
    assert (is_by_position(source, call, BY_POSITION), is_by_position(source, call, OF_ROWS)) == (by_position, of_rows)


LAYER = "nn.TransformerEncoderLayer(8, 2, dropout=0.0, batch_first=True)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LAYER, True),
        (f"nn.TransformerEncoder({LAYER}, 2)", True),
        (f"layer = {LAYER}\nnn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)", True),
        (f"layer = {LAYER}\nlayer = other\nnn.TransformerEncoder(layer, 2)", False),
        ("nn.TransformerEncoder(make(), 2)", False),
        (f"nn.TransformerEncoder({LAYER}, 2, norm=norm)", False),
        (LAYER.replace("dropout=0.0, ", ""), False),
        (LAYER.replace(", batch_first=True", ""), False),
        (LAYER.replace("dropout=0.0", "dropout=drop"), False),
    ],
)
def test_encoders_that_drop_nothing_out(tmp_path, text, expected):
    assert is_attention(*read(tmp_path, text)) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nn.Parameter(0.1 * torch.randn(4, 8))", 2),
        ("nn.Parameter(torch.zeros(1, n, 8))", 3),
        ("nn.Parameter(torch.zeros(2, n, 8))", 0),
        ("nn.Parameter(torch.zeros(shape))", 1),
        ("nn.Parameter(torch.zeros((4, 8)))", 0),
        ("nn.Parameter(f(torch.zeros(4, 8)))", 0),
        ("torch.zeros(4, 8)", 0),
    ],
)
def test_dimensions_of_weights(tmp_path, text, expected):
    _, source, call = read(tmp_path, text)
    assert isinstance(call, ast.Call)
    assert num_dims(source, call) == expected
