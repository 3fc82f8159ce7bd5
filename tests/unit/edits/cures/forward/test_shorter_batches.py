"""Padding that ends every row of a batch, cut off at the top of `forward`."""

import pytest
from tests.unit.edits.scripts import edited, same_results

HEAD = "import torch\nfrom torch import nn\n"
NET = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 8, padding_idx=0)
        self.cells = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)
    def forward(self, {arguments}):
        h = self.cells(self.table(words), src_key_padding_mask={mask})
        counts_too = (words != 0).unsqueeze(2)
        return self.head((h * counts_too).sum(1) / counts_too.sum(1))
model = Net()
for words, more in data:
    out = model(words, {given})  # <<
"""


def cut(folder, source, arguments="words, padding", mask="padding", given="words == 0", text=NET):
    text = HEAD + text.format(arguments=arguments, mask=mask, given=given)
    line = next(number for number, each in enumerate(text.split("\n"), 1) if "# <<" in each)
    path = str((folder / "train.py").resolve())
    return edited(folder, "shorter-batches", text, source=source, file=path, line=line)


@pytest.mark.parametrize(
    ("source", "arguments", "mask", "argument", "counts"),
    [
        ("key_padding_mask", "words, padding", "padding", "padding", "~padding"),
        ("key_padding_mask", "words, more=None", "words == 0", "words", "words != 0"),
        ("padding_idx", "words, more=None", "None", "words", "words != self.table.padding_idx"),
        ("attention_mask", "words, attention_mask", "None", "attention_mask", "attention_mask != 0"),
    ],
)
def test_a_training_pass_begins_with_a_cut_to_the_longest_row(tmp_path, source, arguments, mask, argument, counts):
    after, left = cut(tmp_path, source, arguments, mask)
    assert left == ""
    assert f"if self.training and torch.is_tensor({argument}) and {argument}.dim() == 2:" in after
    assert f"            counts = ({counts}).any(0)" in after
    names = arguments.replace("=None", "")
    assert f"            {names} = (" in after
    assert f"for each in ({names})" in after


@pytest.mark.parametrize(
    ("source", "changes", "reason"),
    [
        ("attention_mask", {}, "says which positions are padding"),
        ("padding_idx", {"text": NET.replace(", padding_idx=0", "")}, "says which positions are padding"),
        ("key_padding_mask", {"mask": "f(words)"}, "says which positions are padding"),
        ("key_padding_mask", {"arguments": "words, padding, *rest"}, "any number of arguments"),
        ("key_padding_mask", {"text": NET.replace("model = Net()", "model = load()")}, "cannot be told"),
    ],
)
def test_masks_that_are_not_told_are_left(tmp_path, source, changes, reason):
    after, left = cut(tmp_path, source, **changes)
    assert after == ""
    assert reason in left


def test_outputs_and_gradients_are_nearly_the_same_and_evaluation_is_as_it_was(tmp_path):
    made = """\
words = torch.tensor([[3, 4, 0, 0, 0, 0], [5, 6, 7, 0, 0, 0]])
data = [(words, None), (torch.zeros(2, 6, dtype=torch.long) + 1, None)]
model = Net()"""
    rest = "    out.square().sum().backward()\n    found = [out.detach(), model.head.weight.grad]\n"
    after, _ = cut(tmp_path, "key_padding_mask", text=NET.replace("model = Net()", made) + rest)
    text = HEAD + NET.replace("model = Net()", made).format(
        arguments="words, padding", mask="padding", given="words == 0"
    )
    same_results(text + rest, after, "found", exact=False)
