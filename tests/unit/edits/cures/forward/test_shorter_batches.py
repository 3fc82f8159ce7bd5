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
        counts_too = ({counts}).unsqueeze(2)
        return self.head((h * counts_too).sum(1) / counts_too.sum(1))
model = Net()
for words, more in data:
    out = model(words, {given})  # <<
"""


def cut(
    folder,
    source,
    arguments="words, padding",
    mask="padding",
    given="words == 0",
    text=NET,
    counts="words != 0",
    more="",
):
    text = HEAD + text.format(arguments=arguments, mask=mask, given=given, counts=counts) + more
    line = next(number for number, each in enumerate(text.split("\n"), 1) if "# <<" in each)
    path = str((folder / "train.py").resolve())
    return edited(folder, "shorter-batches", text, source=source, file=path, line=line)


@pytest.mark.parametrize(
    ("source", "arguments", "mask", "counts", "found", "cut_names"),
    [
        (
            "key_padding_mask",
            "words, padding",
            "padding",
            "words != 0",
            "(~padding) | (words != 0)",
            ["words", "padding"],
        ),
        ("key_padding_mask", "words, padding", "padding", "~padding", "~padding", ["words", "padding"]),
        ("key_padding_mask", "words, more=None", "words == 0", "words != 0", "words != 0", ["words"]),
        ("padding_idx", "words, more=None", "words == 0", "words != 0", "words != 0", ["words"]),
        (
            "attention_mask",
            "words, attention_mask",
            "attention_mask == 0",
            "attention_mask",
            "attention_mask != 0",
            ["words", "attention_mask"],
        ),
    ],
)
def test_a_training_pass_begins_with_a_cut_to_the_longest_row(
    tmp_path, source, arguments, mask, counts, found, cut_names
):
    after, left = cut(tmp_path, source, arguments, mask, counts=counts)
    assert left == ""
    assert (
        "        if (\n            self.training and type(words) is torch.Tensor\n            and words.dim() == 2"
        in after
    )
    assert f"            counts = ({found}).any(0)\n" in after
    assert all(f"            {name} = {name}[:, :length]\n" in after for name in cut_names)
    assert ("padding.dtype is torch.bool" in after) == ("padding" in found)


@pytest.mark.parametrize(
    ("source", "changes", "reason"),
    [
        ("attention_mask", {}, "says which positions are padding"),
        ("padding_idx", {"text": NET.replace(", padding_idx=0", "")}, "says which positions are padding"),
        ("key_padding_mask", {"mask": "f(words)"}, "says which positions are padding"),
        ("key_padding_mask", {"arguments": "words, padding, *rest"}, "any number of arguments"),
        ("key_padding_mask", {"text": NET.replace("model = Net()", "model = load()")}, "cannot be told"),
        ("key_padding_mask", {"text": NET.replace("dropout=0.0", "dropout=0.1")}, "may depend on the padding"),
        ("key_padding_mask", {"text": NET.replace("dropout=0.0, ", "")}, "may depend on the padding"),
        ("key_padding_mask", {"text": NET.replace("(h * counts_too).sum(1)", "h.sum(1)")}, "may depend on the padding"),
        ("key_padding_mask", {"text": NET.replace("(h * counts_too).sum(1)", "h[:, -1]")}, "may depend on the padding"),
        ("key_padding_mask", {"text": NET.replace("(h * counts_too)", "(h * padding)")}, "may depend on the padding"),
        ("key_padding_mask", {"text": NET.replace("self.head((h ", "self.head(h), ((h ")}, "a position for each word"),
        ("padding_idx", {"mask": "None"}, "may depend on the padding"),
        (
            "key_padding_mask",
            {"text": NET.replace("        counts_too", "        self.h = h\n        counts_too")},
            "`self.h",
        ),
        (
            "key_padding_mask",
            {"text": NET.replace("        counts_too", "        print(h)\n        counts_too")},
            "`print",
        ),
        ("key_padding_mask", {"more": "model.register_forward_hook(f)\n"}, "may see the batches"),
        ("key_padding_mask", {"more": "model.cells.dropout.p = 0.2\n"}, "may see the batches"),
        ("key_padding_mask", {"more": "model.head.forward = f\n"}, "may see the batches"),
        ("key_padding_mask", {"more": "class Wide(Net): pass\n"}, "has others below it"),
        ("key_padding_mask", {"more": "model.head = nn.BatchNorm1d(6)\n"}, "may depend on the padding"),
        ("key_padding_mask", {"more": "torch.compile(model)\n"}, "what is traced"),
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
        arguments="words, padding", mask="padding", given="words == 0", counts="words != 0"
    )
    same_results(text + rest, after, "found", exact=False)


OTHERS = {
    "a mask that is added": "model(words, torch.zeros(2, 6).masked_fill(words == 0, -1e9))",
    "a mask that says more": "model(words, words != 0)",
    "words in one row": "model(words[0], words[0] == 0) if 0 else model(words[:1], words[:1] == 0)",
    "labels that are as wide": "model(words, words == 0, torch.ones(2, 6))",
    "no words at all": "model(words * 0 + 1, words < 0)",
}


@pytest.mark.parametrize("name", OTHERS)
def test_batches_of_other_kinds_are_as_long_as_they_were(tmp_path, name):
    text = NET.replace(
        "return self.head((h * counts_too).sum(1) / counts_too.sum(1))",
        """\
wide = self.head((h * counts_too).sum(1) / counts_too.sum(1))
        if soft is None:
            return wide
        return wide, F.cross_entropy(self.many(wide), soft)""",
    )
    text = text.replace("self.head = ", "self.many = nn.Linear(3, 6)\n        self.head = ")
    text = "from torch.nn import functional as F\n" + text.replace(
        "model = Net()",
        """\
words = torch.tensor([[3, 4, 0, 0, 0, 0], [5, 6, 7, 0, 0, 0]])
data = [(words, None)]
model = Net()""",
    )
    more = f"torch.manual_seed(0)\nfor p in model.parameters():\n    torch.nn.init.normal_(p)\nfound = {OTHERS[name]}\n"
    more += "found = list(found) if isinstance(found, tuple) else [found]\nfound = [each.detach() for each in found]\n"
    after, left = cut(tmp_path, "key_padding_mask", "words, padding, soft=None", text=text, more=more)
    assert left == ""
    before = HEAD + text.format(
        arguments="words, padding, soft=None", mask="padding", given="words == 0", counts="words != 0"
    )
    same_results(before.replace("  # <<", "") + more, after, "found", exact=False)
