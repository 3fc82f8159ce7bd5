"""Labels that a training corrects, smooths, guesses and adds while it goes."""

import collections
import copy
import types
from dataclasses import dataclass, field

import numpy as np
import torch
from recording import streams
from script_list import decode, features, script
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, random_split


class NoisyLabels(Dataset):
    """Research style: everything about a sample is an attribute."""

    def __init__(self, noise=0.3, classes=10, seed=1):
        self.inputs, self.classes, self.noise, self.seed = features(), classes, noise, seed
        rng = np.random.RandomState(seed)
        self.clean = rng.randint(0, classes, len(self.inputs))
        flips = rng.rand(len(self.inputs)) < noise
        self.noisy = np.where(flips, rng.randint(0, classes, len(self.inputs)), self.clean)
        self.soft = np.eye(classes, dtype=np.float32)[self.noisy]
        self.use_soft = False

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        decode()
        label = self.soft[index] if self.use_soft else self.noisy[index]
        return {"input": self.inputs[index], "label": label, "index": index}

    def correct(self, indices, labels):
        self.noisy[indices] = labels
        self.soft[indices] = np.eye(self.classes, dtype=np.float32)[labels]


@script("labels", attributes=["noisy", "soft"])
def labels_corrected_by_a_method(wrap, rec):
    data = NoisyLabels()
    loader = wrap(DataLoader(data, batch_size=32, shuffle=True))
    for epoch in range(6):
        for batch in loader:
            rec(batch)
        if epoch >= 2:
            doubtful = np.flatnonzero(data.noisy != data.clean)[:4]
            data.correct(doubtful, data.clean[doubtful])
    rec(streams())


@script("labels", attributes=["soft", "use_soft"])
def labels_softened_by_a_moving_mean(wrap, rec):
    data = NoisyLabels()
    loader = wrap(DataLoader(data, batch_size=32, shuffle=True))
    for epoch in range(5):
        data.use_soft = epoch >= 2
        for batch in loader:
            rec(batch)
            guess = torch.softmax(batch["input"][:, :10], 1).numpy()
            if epoch >= 2:
                data.soft[batch["index"]] = 0.9 * data.soft[batch["index"]] + 0.1 * guess


@script("labels", attributes=["pseudo"])
def labels_guessed_at_the_end_of_each_epoch(wrap, rec):
    class Unlabeled(Dataset):
        def __init__(self):
            self.x = features()
            self.pseudo = {}

        def __len__(self):
            return 256

        def __getitem__(self, i):
            decode()
            return self.x[i], self.pseudo.get(i, -1)

    data = Unlabeled()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    model = torch.nn.Linear(64, 4)
    for _ in range(5):
        for x, y in loader:
            rec([x, y])
        with torch.no_grad():
            scores = model(data.x).softmax(1)
        for i in torch.where(scores.max(1).values > 0.6)[0].tolist():
            data.pseudo[i] = int(scores[i].argmax())
        model.weight.data += 0.05


@script("labels", attributes=["tensors"])
def labels_flipped_in_a_tensor_dataset_behind_a_subset(wrap, rec):
    whole = TensorDataset(features(), torch.arange(256) % 2)
    train, valid = random_split(whole, [200, 56], generator=torch.Generator().manual_seed(1))
    loaders = [wrap(DataLoader(part, batch_size=20, shuffle=part is train)) for part in (train, valid)]
    for epoch in range(5):
        for loader in loaders:
            for batch in loader:
                rec(batch)
        whole.tensors[1][epoch * 3] ^= 1


@script("labels", attributes=["samples", "targets"])
def labels_of_an_image_folder(wrap, rec):
    class Folder(Dataset):
        def __init__(self, classes=("cat", "dog")):
            self.class_to_idx = {name: number for number, name in enumerate(classes)}
            self.samples = [(f"{classes[i % 2]}/{i}.png", i % 2) for i in range(128)]
            self.targets = [target for _, target in self.samples]
            self.loader = lambda path: torch.full((3, 4, 4), float(path.split("/")[1].split(".")[0]))

        def __len__(self):
            return len(self.samples)

        def __getitem__(self, index):
            path, target = self.samples[index]
            decode()
            return self.loader(path), target

    data = Folder()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for epoch in range(5):
        for batch in loader:
            rec(batch)
        if epoch == 1:
            data.samples[9] = (data.samples[9][0], 5)
        if epoch == 2:
            data.samples = [(path, 1 - target) for path, target in data.samples]
        if epoch == 3:
            data.loader = lambda path: torch.zeros(3, 4, 4)


@dataclass
class Annotation:
    label: int
    boxes: list = field(default_factory=list)
    attributes: dict = field(default_factory=dict)


@script("labels", attributes=["label", "boxes", "attributes"])
def labels_of_dataclasses_with_boxes(wrap, rec):
    class Detection(Dataset):
        def __init__(self):
            self.x = features()
            self.annotations = [Annotation(i % 3, [[i, i, i + 5, i + 5]], {"crowd": False}) for i in range(256)]

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            decode()
            a = self.annotations[i]
            return self.x[i], {"label": a.label, "box": torch.tensor(a.boxes[0]), "crowd": a.attributes["crowd"]}

    data = Detection()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for epoch in range(6):
        for batch in loader:
            rec(batch)
        if epoch == 2:
            data.annotations[17].boxes[0][2] += 100
            data.annotations[199].attributes["crowd"] = True
        if epoch == 3:
            for annotation in data.annotations[50:53]:
                annotation.label = 9


@script("labels", attributes=["vocabulary"])
def labels_by_a_vocabulary_that_grows(wrap, rec):
    class Words(Dataset):
        def __init__(self):
            self.text = [f"word{i % 40}" for i in range(200)]
            self.vocabulary = collections.defaultdict(lambda: 0)
            self.vocabulary.update({f"word{i}": i for i in range(20)})

        def __len__(self):
            return len(self.text)

        def __getitem__(self, i):
            decode()
            return self.vocabulary[self.text[i]], len(self.vocabulary)

    data = Words()
    loader = wrap(DataLoader(data, batch_size=20, shuffle=True))
    for epoch in range(5):
        for batch in loader:
            rec(batch)
        data.vocabulary[f"word{20 + epoch}"] = 20 + epoch
    rec(dict(data.vocabulary))


@script("labels", attributes=["x", "y"])
def labels_kept_outside_in_the_same_arrays(wrap, rec):
    inputs, labels = np.random.RandomState(0).randn(256, 8).astype(np.float32), np.arange(256)

    class Arrays(Dataset):
        def __init__(self, x, y):
            self.x, self.y = x, y

        def __len__(self):
            return len(self.y)

        def __getitem__(self, i):
            decode()
            return self.x[i], self.y[i]

    loader = wrap(DataLoader(Arrays(inputs, labels), batch_size=16, shuffle=True))
    for epoch in range(6):
        for batch in loader:
            rec(batch)
        if epoch % 2:
            labels[epoch * 11] = -labels[epoch * 11] - 1
        else:
            inputs[200 + epoch] *= 0.5


@script("labels", attributes=["mapping"])
def labels_remapped_through_a_proxy(wrap, rec):
    inner = {i: i for i in range(10)}

    class Mapped(Dataset):
        def __init__(self):
            self.x = features()
            self.mapping = types.MappingProxyType(inner)

        def __len__(self):
            return 256

        def __getitem__(self, i):
            decode()
            return self.x[i], self.mapping[i % 10]

    loader = wrap(DataLoader(Mapped(), batch_size=16, shuffle=True))
    for epoch in range(5):
        for number, batch in enumerate(loader):
            rec(batch)
            if (epoch, number) == (3, 7):
                inner[4], inner[5] = inner[5], inner[4]


@script("labels", attributes=["noisy"])
def labels_restored_from_a_copy(wrap, rec):
    data = NoisyLabels()
    before = copy.deepcopy(vars(data))
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for epoch in range(6):
        if epoch == 2:
            data.noisy[:] = 0
        if epoch == 4:
            vars(data).update(copy.deepcopy(before))
        for batch in loader:
            rec(batch)


@script("labels", attributes=["indices"])
def labels_known_so_far_in_a_subset(wrap, rec):
    pool = TensorDataset(features(), torch.arange(256))
    labeled = Subset(pool, list(range(64)))
    loader = wrap(DataLoader(labeled, batch_size=16, shuffle=True))
    for epoch in range(6):
        for x, y in loader:
            rec([x, y])
        rec(len(loader))
        asked = (pool.tensors[0][64:, 0] - epoch / 10).abs().topk(16, largest=False).indices + 64
        labeled.indices.extend(asked.tolist())
