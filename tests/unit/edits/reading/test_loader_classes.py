"""Loaders whose class is the user's own, below torch's DataLoader."""

import pytest
from tests.unit.edits.scripts import one, written

from flatout.schema.facts import Frame, LoaderFacts, SamplePrefix

SCRIPT = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Digits(DataLoader):
    \"\"\"Rows of digits.\"\"\"

    def __init__(self, folder, batch_size, shuffle=True):
        self.folder = folder
        super().__init__(read(folder), batch_size=batch_size, shuffle=shuffle)


model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = Digits("data", 2)
for x, y in loader:
    x = x.to(device)
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
"""
GIVEN = "batch_size=batch_size, shuffle=shuffle)"
TEST = "with torch.no_grad():\n    for x, y in {}:\n        model(x)\n"


@pytest.mark.parametrize(
    ("fix", "settings", "changes"),
    [
        ("loader-workers", {"workers": 2}, [(GIVEN, GIVEN[:-1] + ", num_workers=2)")]),
        (
            "pinned-copy",
            {},
            [(GIVEN, GIVEN[:-1] + ", pin_memory=True)"), (".to(device)", ".to(device, non_blocking=True)")],
        ),
        (
            "compiled-input",
            {},
            [
                ('Digits("data", 2)', 'flatout.compile_loader(Digits("data", 2))'),
                ("import torch\n", "import flatout\nimport torch\n"),
            ],
        ),
    ],
)
def test_an_argument_is_given_where_the_class_gives_its_own_and_what_it_makes_is_wrapped(
    tmp_path, fix, settings, changes
):
    expected = SCRIPT
    for before, after in changes:
        expected = expected.replace(before, after, 1)
    after, outcome = one(tmp_path, fix, SCRIPT, **settings)
    assert after == expected
    assert outcome.left == ()
    again, outcome = one(tmp_path, fix, after, **settings)
    assert again == after
    assert (outcome.changed, outcome.left) == (0, ())


def test_the_long_form_of_super_and_another_file_are_read_as_well(tmp_path):
    head, _, tail = SCRIPT.partition("\n\nmodel =")
    head = head.replace("super().__init__", "super(Digits, self).__init__")
    imports = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\nfrom rows import Digits\n"
    tail = f"{imports}\nmodel ={tail}"
    files, (outcome,) = written(tmp_path, {"loader-workers": {"workers": 2}}, train=tail, rows=head)
    assert b"shuffle=shuffle, num_workers=2)" in files["rows"]
    assert files["train"].decode() == tail
    assert outcome.left == ()


BEFORE, LOOP = "\n\nmodel", "for x, y in loader"
LEFT = [
    ("loader-workers", (GIVEN, "batch_size=batch_size, num_workers=workers)"), "num_workers is given as workers"),
    ("loader-workers", (GIVEN, "**self.kept)"), "**kwargs"),
    ("loader-workers", (GIVEN, "sampler=self.mine())"), "sampler is self.mine()"),
    ("loader-workers", (BEFORE, "\n    def __iter__(self):\n        return iter([])\n\n\nmodel"), "no call of torch's"),
    ("loader-workers", ("super().__init__(", "DataLoader.__init__(self, "), "no call of torch's"),
    ("loader-workers", ("(DataLoader)", "(DataLoader, Mixed)"), "no call of torch's"),
    ("loader-workers", (LOOP, f"test = Digits('test', 2)\n{TEST.format('test')}{LOOP}"), "training loaders and others"),
    ("loader-workers", ('Digits("data", 2)', "getattr(loaders, 'Digits')()"), "it is not clear"),
    ("loader-workers", ('Digits("data", 2)', "make(Digits)"), "it is not clear"),
    ("compiled-input", (BEFORE, "\n    def rest(self):\n        return 3\n\n\nmodel"), "defines more"),
    ("compiled-input", (LOOP, f"assert isinstance(loader, Digits)\n{LOOP}"), "it is not clear"),
    ("compiled-input", (LOOP, f"loader.folder = 'other'\n{LOOP}"), "is set later"),
    (
        "loader-workers",
        (BEFORE, "\n    def join(self, rows):\n        return torch.randn(2)\n\n\nmodel"),
        "randn is called where samples are made",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fix", "change", "reason"), LEFT)
def test_what_a_class_does_not_show_is_left_out(tmp_path, fix, change, reason):
    text = SCRIPT.replace(*change)
    assert text != SCRIPT
    if "def join" in change[1]:
        text = text.replace(GIVEN, GIVEN[:-1] + ", collate_fn=self.join)")
    after, outcome = one(tmp_path, fix, text, **({"workers": 2} if fix == "loader-workers" else {}))
    assert after == text
    assert reason in " ".join(outcome.left)


def test_of_two_loaders_of_a_class_the_one_for_training_is_wrapped(tmp_path):
    text = SCRIPT.replace(LOOP, f"test = Digits('test', 2)\n{TEST.format('test')}{LOOP}")
    after, outcome = one(tmp_path, "compiled-input", text)
    assert "loader = flatout.compile_loader(Digits(\"data\", 2))\ntest = Digits('test', 2)\n" in after
    assert (outcome.changed, outcome.left) == (1, ())
    again, outcome = one(tmp_path, "compiled-input", after)
    assert (again, outcome.changed, outcome.there) == (after, 0, 1)


def test_a_class_that_is_made_by_a_name_of_a_settings_file_is_said_to_be(tmp_path):
    text = SCRIPT.replace('Digits("data", 2)', "settings.make('data_loader')")
    after, outcome = one(tmp_path, "compiled-input", text)
    assert after == text
    assert outcome.left == ("train.py:12: no call of Digits is in the source: a name computed at run time makes it",)


def test_one_loader_that_is_looked_at_between_epochs_is_for_training(tmp_path):
    text = SCRIPT + TEST.format("loader")
    after, outcome = one(tmp_path, "loader-workers", text, workers=2)
    assert after == text.replace(GIVEN, GIVEN[:-1] + ", num_workers=2)")
    assert outcome.left == ()


def test_a_class_below_the_users_own_hands_its_arguments_through_it(tmp_path):
    text = SCRIPT.replace("\n\nmodel", "\n\nclass Mine(Digits):\n    pass\n\n\nmodel").replace("= Digits(", "= Mine(")
    after, outcome = one(tmp_path, "loader-workers", text, workers=2)
    assert after == text.replace(GIVEN, GIVEN[:-1] + ", num_workers=2)")
    assert outcome.left == ()
    after, outcome = one(tmp_path, "compiled-input", text)
    assert after == text
    assert "defines more" in outcome.left[0]


def test_a_recording_tells_what_a_class_is_for_that_is_made_by_a_computed_name(tmp_path):
    text = SCRIPT.replace('Digits("data", 2)', "getattr(loaders, kind)('data', 2)")
    line = next(number for number, each in enumerate(text.splitlines(), start=1) if "super()" in each)
    place = Frame(str(tmp_path / "train.py"), line, "Digits.__init__")
    facts = LoaderFacts(is_training=True, created_at=place, prefix=SamplePrefix(checked=2, deterministic=True))
    files, _ = written(
        tmp_path, {"worker-threads": {}}, train=text.replace(GIVEN, GIVEN[:-1] + ", num_workers=2)"), recorded=(facts,)
    )
    assert b"num_workers=2, worker_init_fn=flatout.use_one_thread)" in files["train"]
    files, (outcome,) = written(tmp_path, {"compiled-input": {}}, train=text, recorded=(facts,))
    assert files["train"].decode() == text
    assert "no call of Digits is in the source" in outcome.left[0]
