"""What `flatout tune` says of fixes that it did not try, and of those that stood back, on scripts that show both."""

import json

import pytest

DRAWS = '''
import random
import torch


class Clicks(torch.utils.data.Dataset):
    """Each sample is a bag of items and whether it was bought, invented as it is asked for."""

    def __len__(self):
        return 100_000

    def __getitem__(self, _):
        return torch.tensor([random.randrange(500) for _ in range(12)]), float(random.random() < 0.3)


random.seed(1), torch.manual_seed(1), torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.EmbeddingBag(500, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
adam = torch.optim.AdamW(model.parameters())
batches = torch.utils.data.DataLoader(Clicks(), batch_size=256)
for bags, bought in batches:
    adam.zero_grad(set_to_none=True)
    torch.nn.functional.binary_cross_entropy_with_logits(model(bags).flatten(), bought.float()).backward()
    adam.step()
'''
MOLECULES = """
import dataclasses
import torch
from torch import nn

torch.manual_seed(2), torch.set_num_threads(1)


@dataclasses.dataclass(eq=False)
class Molecule:
    atoms: torch.Tensor
    owner: torch.Tensor
    energy: torch.Tensor


SIZES = torch.randint(3, 9, (512,)).tolist()
ATOMS = [torch.randn(size, 6) for size in SIZES]


def joined(molecules):
    owner = [torch.full((len(one.atoms),), number) for number, one in enumerate(molecules)]
    return Molecule(
        torch.cat([one.atoms for one in molecules]), torch.cat(owner), torch.stack([one.energy for one in molecules])
    )


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(6, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU())
        self.outside = nn.Linear(64, 1)

    def forward(self, batch):
        summed = torch.zeros(len(batch.energy), 64).index_add(0, batch.owner, self.inside(batch.atoms))
        return self.outside(summed).squeeze(1)


data = [Molecule(atoms, torch.zeros(len(atoms)), atoms.sum()) for atoms in ATOMS]
field = Field()
descent = torch.optim.SGD(field.parameters(), lr=1e-4)
for epoch in range(10_000):
    for batch in torch.utils.data.DataLoader(data, 32, shuffle=True, collate_fn=joined):
        (field(batch) - batch.energy).abs().mean().backward()
        descent.step(), descent.zero_grad()
"""

CURRICULUM = """
import random
import torch
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(3), random.seed(3), torch.set_num_threads(1)


class Sums(Dataset):
    def __init__(self, rows):
        self.problems = []
        self.harder(rows)

    def harder(self, rows):
        starts = [random.randrange(50) for _ in range(rows)]
        self.problems = [{"terms": range(start, start + 40), "scale": 0.1} for start in starts]

    def __len__(self):
        return len(self.problems)

    def __getitem__(self, at):
        problem = self.problems[at]
        rolling = [0.0]
        for _ in range(20):
            for term in problem["terms"]:
                rolling.append(0.5 * rolling[-1] + problem["scale"] * term)
        return torch.tensor(rolling), rolling[-1]


class Teaching:
    def __init__(self):
        self.sums, self.net = Sums(40_000), torch.nn.Linear(801, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-6, momentum=0.9)

    def lesson(self):
        for rolling, total in DataLoader(self.sums, batch_size=24, shuffle=True):
            loss = (self.net(rolling).squeeze(1) - total).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


teaching = Teaching()
for lesson in range(1000):
    teaching.sums.harder(40_000)
    teaching.lesson()
"""


@pytest.fixture
def tune(flatout):
    """Return a function that tunes a script with some fixes, and returns the page, the terminal and the JSON."""
    flatout.environment |= {"OMP_NUM_THREADS": "1"}

    def run(script, *only, budget):
        flatout.write(script)
        words = [word for each in only for word in ("--only", each)]
        ended = flatout("tune", "--budget", budget, *words, "--json", "report.json", "train.py")
        assert ended.code == 0, ended.err
        page = next((flatout.folder / ".flatout").rglob("report.html")).read_text()
        return page, " ".join(ended.out.split()), json.loads((flatout.folder / "report.json").read_text())

    return run


def test_fixes_for_samples_that_do_not_come_again_are_neither_offered_nor_tried_and_tune_says_why(tune):
    page, shown, report = tune(DRAWS, "compiled-input", "cached-input", budget="150s")
    drawn = "samples are drawn from Python's global generator (Clicks, train.py:13)"
    assert f"{drawn}, so none can be kept" in shown
    assert "Clicks, train.py:13" in page
    assert report["trials"] == []
    named = {name for finding in report["findings"] for name in finding["fixes"]}
    assert report["findings"]
    assert not named & {"compiled-input", "cached-input"}


@pytest.mark.alone
def test_workers_are_tried_on_random_samples_by_predicted_streams(tune):
    _, _, report = tune(DRAWS, "loader-workers", budget="150s")
    assert [trial["fix"] for trial in report["trials"]]
    assert not any("drawn" in trial["reason"] for trial in report["trials"])


def test_fixes_that_met_what_they_leave_alone_say_what_it_was(tune):
    _, shown, report = tune(MOLECULES, "compiled-input", "one-pass-optimizer", budget="150s")
    reasons = {trial["fix"]: trial["reason"] for trial in report["trials"]}
    assert reasons["compiled-input"].endswith("its batches hold objects of a class that is not known (Molecule)")
    assert reasons["one-pass-optimizer"] == "sgd: SGD without momentum has one operation for each tensor already"
    assert {trial["verdict"] for trial in report["trials"]} == {"NOT_APPLIED"}
    assert "the script never reached" not in shown


@pytest.mark.alone
def test_what_a_trial_shows_faster_is_not_kept_where_every_pass_has_other_rows(tune):
    _, shown, report = tune(CURRICULUM, "compiled-input", budget="150s")
    (trial,) = report["trials"]
    assert trial["verdict"] == "NOT_APPLIED", trial
    assert "Sums changes from pass to pass" in trial["reason"]
    assert report["recipe"] is None
    assert "changes from pass to pass" in shown
