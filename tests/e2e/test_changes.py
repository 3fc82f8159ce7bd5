"""Data sets that change late, in the middle of a pass: a recipe that `flatout tune` made trains to the plain weights.

The trials see no more than the passes before, in which nothing changes. Samples take most of a step, so that no other
load of the machine decides whether the fix is kept; steps are slow enough for some pairs to be timed until the script
ends under the fix.
"""

import re
import subprocess
import sys
import tomllib

import pytest

pytestmark = [
    pytest.mark.alone,
    pytest.mark.full,
    pytest.mark.timeout(600),  # a tune and two trainings: 190 to 240 s each beside three other test runs on two cores
]

EPOCHS, BATCHES = 240, 4
SERVED = 0.95  # of all batches; the first pass, the rest of the changed one and that after it are the script's own

CURRICULUM = """
import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Shapes(Dataset):
    def __init__(self, count):
        made = numpy.random.default_rng(3)
        self.points, self.kinds = made.normal(size=(count, 12)), made.integers(0, 4, count)
        self.easiness = 2.0

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        order = numpy.argsort(numpy.cos(numpy.arange(24_000.0) * self.kinds[index]))  # as dear as decoding an image
        point = self.points[index].clip(-self.easiness, self.easiness) + order[0] * 1e-6
        return torch.from_numpy(point).float(), int(self.kinds[index])


def train(shapes, epochs):
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(12, 640), nn.ReLU(), nn.Linear(640, 640), nn.ReLU(), nn.Linear(640, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader, seen = DataLoader(shapes, batch_size=16, shuffle=True), 0
    for epoch in range(epochs):
        total = 0.0
        for points, kinds in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(points), kinds).backward()
            optimizer.step()
            total += points.double().abs().sum().item()
            seen += 1
            if seen == 160 * len(loader) + 2:
                shapes.easiness = 0.5
        print(f"{total:.6f}")
    return model


if __name__ == "__main__":
    numpy.concatenate([each.detach().numpy().ravel() for each in train(Shapes(64), 240).parameters()]).tofile("weights")
"""

CORRECTED = """
import time, torch, torch.utils.data as data
torch.set_num_threads(1); torch.manual_seed(5)
rows = [{"text": [(7 * n + k * k) % 50 for k in range(6)], "label": n % 3} for n in range(64)]
to_correct = {5: 2, 17: 0, 23: 1, 40: 2, 61: 0}

class Rows(data.Dataset):
    def __init__(self, rows): self.rows = rows
    def __len__(self): return len(self.rows)
    def __getitem__(self, n):
        time.sleep(6e-4)  # a tokenizer behind a socket
        return torch.tensor(self.rows[n]["text"]), self.rows[n]["label"]

net = torch.nn.Sequential(torch.nn.EmbeddingBag(50, 8), torch.nn.Linear(8, 3))
optimizer = torch.optim.Adam(net.parameters(), 1e-2)
loader = data.DataLoader(Rows(rows), 16, sampler=data.RandomSampler(rows))
for epoch in range(240):
    labels = 0
    for number, (text, label) in enumerate(loader):
        loss = torch.nn.CrossEntropyLoss()(net(text), label)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        labels += label.square().sum().item()
        time.sleep(2e-3)  # a line for the monitor
        if epoch == 160 and number == 1:
            for n, right in to_correct.items(): rows[n]["label"] = right
    print(labels)
with open("weights", "wb") as file:
    for each in net.parameters(): file.write(each.detach().numpy().tobytes())
"""


def trained(flatout, *words):
    """Return the weights and what was printed."""
    done = subprocess.run([sys.executable, *words], cwd=flatout.folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    weights = flatout.folder / "weights"
    found = weights.read_bytes()
    weights.unlink()
    return found, done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize("script", [CURRICULUM, CORRECTED], ids=["an attribute", "labels in a list of dicts"])
def test_a_change_in_the_middle_of_a_late_pass_trains_to_the_plain_weights(flatout, script):
    flatout.write(script)
    tuned = flatout.wait(flatout.start("tune", "--only", "compiled-input", "--budget", "150s", "train.py"), timeout=240)
    assert tuned.code == 0, tuned.err
    recipe = tomllib.loads((flatout.folder / "flatout.toml").read_text())
    assert [fix["name"] for fix in recipe["fix"]] == ["compiled-input"]

    weights, printed, _ = trained(flatout, "train.py")
    assert printed[159] == printed[0] != printed[161] == printed[-1], "the change is one"
    found, told, said = trained(flatout, "-m", "flatout", "run", "train.py")
    assert found == weights
    assert told == printed
    (served,) = re.findall(r"compiled-input: DataLoader (\d+)", said)
    assert SERVED * EPOCHS * BATCHES <= int(served) < EPOCHS * BATCHES
