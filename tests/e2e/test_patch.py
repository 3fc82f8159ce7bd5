"""A patched script trains to the same bits as the untouched one where the fix promises that."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(0)


class Rows(Dataset):
    def __init__(self):
        made = torch.Generator().manual_seed(1)
        self.x = torch.randn(70, 6, generator=made)

    def __len__(self):
        return 70

    def __getitem__(self, index):
        return self.x[index] * 2, self.x[index].sum()


if __name__ == "__main__":
    torch.autograd.set_detect_anomaly(True)
    model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    train, test = DataLoader(Rows(), batch_size=8, shuffle=True), DataLoader(Rows(), batch_size=35)
    for epoch in range(3):
        model.train()
        for x, y in train:
            out = model(x)
            loss = F.mse_loss(out.squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for x, y in test:
                model(x)
    torch.save(model.state_dict(), "weights.pt")
    torch.save(torch.get_rng_state(), "random.pt")
"""
SETTINGS = {
    "loader-workers": "settings = {workers = 2, persistent = true}",
    "cached-input": 'settings = {folder = "kept"}',
    "fused-optimizer": 'settings = {implementation = "fused"}',
}
BITWISE = ["loader-workers", "compiled-input", "cached-input", "anomaly-off", "one-pass-optimizer"]


def trained(folder):
    import torch

    done = subprocess.run([sys.executable, "train.py"], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / name, weights_only=True) for name in ("weights.pt", "random.pt")]


def patched(folder, *fixes):
    (folder / "train.py").write_text(SCRIPT)
    tables = "".join(f'[[fix]]\nname = "{fix}"\nequivalence = "BITWISE"\n{SETTINGS.get(fix, "")}\n' for fix in fixes)
    proven = '[proven]\ndate = ""\nflatout = ""\npython = ""\ntorch = ""\ndevice = ""\n'
    (folder / "flatout.toml").write_text(f'schema = 1\nscript = "train.py"\n{tables}{proven}')
    command = [sys.executable, "-m", "flatout", "patch", "--write", "train.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (folder / "train.py").read_text() != SCRIPT


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    (folder / "train.py").write_text(SCRIPT)
    return trained(folder)


@pytest.mark.parametrize("fixes", [*([fix] for fix in BITWISE), ["anomaly-off", "loader-workers"]], ids=" ".join)
@pytest.mark.few(1)
def test_a_patched_script_trains_to_the_same_bits_and_the_same_random_state(tmp_path, plain, fixes):
    patched(tmp_path, *fixes)
    weights, random = trained(tmp_path)
    assert all((weights[name] == value).all() for name, value in plain[0].items())
    assert (random == plain[1]).all()


@pytest.mark.parametrize("fix", ["bf16-autocast", "fused-optimizer", "denormals"])
@pytest.mark.full
def test_a_script_patched_for_another_class_trains_to_nearly_the_same_weights(tmp_path, plain, fix):
    import torch

    patched(tmp_path, fix)
    weights, random = trained(tmp_path)
    assert list(weights) == list(plain[0])
    for name, value in plain[0].items():
        torch.testing.assert_close(weights[name], value, rtol=0.05, atol=0.02)
    assert (random == plain[1]).all()


WASTEFUL = """\
import gc

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
data = TensorDataset(torch.randn(640, 64), torch.randn(640, 1))


def evaluate(model, loader):
    model.eval()
    wrong = 0.0
    for x, y in loader:
        wrong += F.mse_loss(model(x), y).item()
    return wrong / len(loader)


if __name__ == "__main__":
    model = nn.Sequential(nn.Linear(64, 256), nn.Dropout(0.2), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train, test = DataLoader(data, batch_size=16, shuffle=True), DataLoader(data, batch_size=1)
    for epoch in range(6):
        model.train()
        total = 0.0
        for step, (x, y) in enumerate(train):
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss
            if step % 8 == 0:
                gc.collect()
        print(f"{epoch} {total / len(train):.6f} {evaluate(model, test):.6f}")
    torch.save(model.state_dict(), "weights.pt")
    torch.save(torch.get_rng_state(), "random.pt")
"""


@pytest.mark.full
def test_what_a_diagnosis_found_is_written_without_a_recipe_and_trains_to_the_same_bits(tmp_path):
    (tmp_path / "train.py").write_text(WASTEFUL)
    plain = trained(tmp_path)
    flatout = [sys.executable, "-m", "flatout"]
    found = subprocess.run(
        [*flatout, "diagnose", "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert found.returncode == 0, found.stderr
    (page,) = tmp_path.glob(".flatout/**/report.html")
    assert "<code>+            total += loss.detach()</code>" in page.read_text()
    command = [*flatout, "patch", "--findings", "--write", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (found.stdout, done.stderr)
    after = (tmp_path / "train.py").read_text()
    expected = WASTEFUL.replace("total += loss\n", "total += loss.detach()\n").replace("gc.collect()", "pass")
    assert after == expected.replace("def evaluate", "@torch.no_grad()\ndef evaluate"), (found.stdout, done.stderr)
    weights, random = trained(tmp_path)
    assert all((weights[name] == value).all() for name, value in plain[0].items())
    assert (random == plain[1]).all()
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert again.returncode == 2
    assert "changed since the newest recording" in again.stderr
