"""Three small trainings that save and go on: images with batch statistics, tables with workers, sequences.

python train.py train KIND FOLDER            train from nothing, save in FOLDER
python train.py compare KIND FOLDER ...      load from each, compare with the first, train on, compare again
"""

import copy
import json
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

EPOCHS = 2


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.inner, self.short = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.Conv2d(16, 16, 1, bias=False)
        self.inner_norm, self.head = nn.BatchNorm2d(16), nn.Linear(16, 4)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        x = torch.relu(self.inner_norm(self.inner(x)) + self.short(x))
        return self.head(x.mean((2, 3)))


class Pictures(Dataset):
    def __init__(self):
        made = torch.Generator().manual_seed(1)
        self.pixels, self.labels = (
            torch.randn(76, 3, 12, 12, generator=made),
            torch.randint(0, 4, (76,), generator=made),
        )

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, at):
        sum(number * number for number in range(2000))  # decoding
        return self.pixels[at], self.labels[at]


class Rows(Dataset):
    def __init__(self):
        made = torch.Generator().manual_seed(2)
        self.rows, self.labels = torch.randn(60, 12, generator=made), torch.randint(0, 4, (60,), generator=made)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, at):
        return self.rows[at] + 0.1 * torch.randn(12), self.labels[at]


class Sequences(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.layer(self.table(x)).mean(1))


def images():
    model = Residual()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    return model, optimizer, DataLoader(Pictures(), 8, shuffle=True)


def tables():
    torch.autograd.set_detect_anomaly(True)
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3), DataLoader(Rows(), 8, shuffle=True, num_workers=1)


def sequences():
    made = torch.Generator().manual_seed(3)
    data = TensorDataset(torch.randint(0, 20, (64, 10), generator=made), torch.randint(0, 4, (64,), generator=made))
    model = Sequences()
    groups = [
        {"params": model.table.parameters(), "lr": 1e-2},
        {"params": [*model.layer.parameters(), *model.head.parameters()]},
    ]
    return model, torch.optim.Adam(groups, lr=1e-3), DataLoader(data, 8, shuffle=True)


def train(kind, folder, saved=None):
    torch.manual_seed(0)
    model, optimizer, loader = {"images": images, "tables": tables, "sequences": sequences}[kind]()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    if saved is not None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        scheduler.load_state_dict(saved["scheduler"])
        torch.set_rng_state(saved["random"])
    accumulate = 2 if kind == "sequences" else 1
    for epoch in range(EPOCHS):
        for number, (x, y) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(model(x), y) / accumulate
            loss.backward()
            if number % accumulate == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        scheduler.step()
        checkpoint = {
            "model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
            "random": torch.get_rng_state(), "epoch": epoch, "loss": loss.item(),
        }  # fmt: skip
        if folder is not None:
            torch.save(checkpoint, os.path.join(folder, "part.pt"))
            os.replace(os.path.join(folder, "part.pt"), os.path.join(folder, "last.pt"))
            torch.save(checkpoint, os.path.join(folder, f"epoch{epoch}.pt"))
    if folder is not None:
        torch.save(model, os.path.join(folder, "whole.pt"))
    return checkpoint


def differences(one, other, bits, at=""):
    """Yield where two checkpoints differ: in form (bits=False) or in the content of their tensors and losses."""
    if type(one) is not type(other):
        yield f"{at} is {type(other).__name__}, not {type(one).__name__}"
    elif isinstance(one, torch.Tensor):
        yield from tensor_differences(one, other, bits, at)
    elif isinstance(one, dict):
        if list(one) != list(other):
            yield f"{at} has other keys: {sorted(set(map(str, one)) ^ set(map(str, other))) or 'in another order'}"
        for key in one:
            yield from differences(one[key], other.get(key), bits, f"{at}/{key}")
    elif isinstance(one, list | tuple):
        if len(one) != len(other):
            yield f"{at} has {len(other)} items, not {len(one)}"
        for number, (left, right) in enumerate(zip(one, other, strict=False)):
            yield from differences(left, right, bits, f"{at}/{number}")
    elif bits == (at == "/loss") and one != other:
        yield f"{at} is {other!r}, not {one!r}"


def tensor_differences(one, other, bits, at):
    forms = [(each.dtype, tuple(each.shape), each.stride(), str(each.device)) for each in (one, other)]
    if not bits and forms[0] != forms[1]:
        yield f"{at} is {forms[1]}, not {forms[0]}"
    elif bits and forms[0] == forms[1] and not torch.equal(one, other):
        yield f"{at} has other bits"


def load(folder):
    """Load every file of a training; the model that was saved whole by its states and all its attributes."""
    whole = torch.load(os.path.join(folder, "whole.pt"), weights_only=False)
    names = [sorted(vars(module)) for module in whole.modules()]
    extra = [sorted(vars(each)) for each in (*whole.parameters(), *whole.buffers())]
    files = {
        name: torch.load(os.path.join(folder, name), weights_only=True)
        for name in ("last.pt", "epoch0.pt", "epoch1.pt")
    }
    return {**files, "whole.pt": {"states": dict(whole.state_dict()), "names": names, "extra": extra}}


def compare(kind, folders):
    plain = reached = None
    for folder in folders:
        files = load(folder)
        after = train(kind, None, copy.deepcopy(files["last.pt"]))  # the optimizer goes on with the tensors it is given
        plain, reached = plain or files, reached or after
        form = [name + each for name in files for each in differences(plain[name], files[name], False)]
        bits = [name + each for name in files for each in differences(plain[name], files[name], True)]
        form += ["continued" + each for each in differences(reached, after, False)]
        bits += ["continued" + each for each in differences(reached, after, True)]
        if not all(value.isfinite().all() for value in after["model"].values()):
            form.append("continued: not finite")
        print(json.dumps({"form": form, "bits": bits}), flush=True)


if __name__ == "__main__":
    action, kind, *folders = sys.argv[1:]
    if action == "train":
        train(kind, folders[0])
    else:
        compare(kind, folders)
