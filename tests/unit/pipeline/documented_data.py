"""Small generated data of the forms that documentation works with, and the data sets and collate functions it shows."""

import csv
import json
import random

import numpy as np
import torch
from PIL import Image
from tests.torchvision_stub import torchvision
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, IterableDataset
from torchvision import tv_tensors
from torchvision.transforms import functional as F

T = torchvision.transforms
NUM_FILES = 10


def write(root):
    """Write pictures, masks, waveforms and tables below `root`, the same each time."""
    draw = np.random.RandomState(0)
    for number in range(NUM_FILES):
        folder = root / "photos" / ("ants" if number % 2 else "bees")
        folder.mkdir(parents=True, exist_ok=True)
        size = (90, 70) if number % 3 else (64, 100)
        pixels = draw.randint(0, 256, (size[1] // 10, size[0] // 10, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize(size).save(folder / f"{number}.jpg", quality=90)
        for name in ("flat", "masks", "waves"):
            (root / name).mkdir(exist_ok=True)
        Image.fromarray(pixels).resize((80, 72)).save(root / "flat" / f"{number}.png")
        boxes = np.zeros((72, 80), dtype=np.uint8)
        boxes[5:30, 8:40], boxes[35:60, 30:70] = 1, 2
        Image.fromarray(boxes).save(root / "masks" / f"{number}.png")
        np.save(root / "waves" / f"{number}.npy", draw.randn(1, 1600 + 100 * (number % 4)).astype(np.float32))
    with (root / "table.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerows([[f"{number}.png", number % 3, *draw.rand(8).round(4)] for number in range(NUM_FILES)])
    text = ["to", "be", "or", "not", "to", "be", "that", "is", "the", "question", "whether", "tis", "nobler"]
    lines = [{"text": " ".join((4 * text)[: 20 + number % 30]), "label": number % 2} for number in range(24)]
    (root / "lines.json").write_text("\n".join(map(json.dumps, lines)))
    draw.randint(0, 500, 400).astype(np.uint16).tofile(root / "train.bin")


def _held(kind, shape, transform, target_transform, name, num=24):
    draw = np.random.RandomState(1)
    made = kind.__new__(kind)
    made.data, made.targets = draw.randint(0, 256, (num, *shape), dtype=np.uint8), [place % 10 for place in range(num)]
    if name == "digits":
        made.data, made.targets = torch.from_numpy(made.data), torch.tensor(made.targets)
    made.transform, made.target_transform = transform, target_transform
    return made


def mnist(transform=None, target_transform=None):
    return _held(torchvision.datasets.MNIST, (28, 28), transform, target_transform, "digits")


def fashion(transform=None, target_transform=None):
    return _held(torchvision.datasets.FashionMNIST, (28, 28), transform, target_transform, "digits")


def cifar(transform=None, target_transform=None, num=24):
    return _held(torchvision.datasets.CIFAR10, (32, 32, 3), transform, target_transform, "colour", num)


def svhn(transform=None):
    made = torchvision.datasets.SVHN.__new__(torchvision.datasets.SVHN)
    made.data = np.random.RandomState(2).randint(0, 256, (24, 3, 32, 32), dtype=np.uint8)
    made.labels, made.transform, made.target_transform = np.arange(24) % 10, transform, None
    return made


def photos(root, transform):
    return torchvision.datasets.ImageFolder(root / "photos", transform)


# -- data sets of the pages' own ------------------------------------------------------------------------------------


class Annotated(Dataset):
    """A table of file names and labels beside a folder of images."""

    def __init__(self, root, transform=None, target_transform=None):
        self.rows = list(csv.reader((root / "table.csv").read_text().splitlines()))
        self.folder, self.transform, self.target_transform = root / "flat", transform, target_transform

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        name, label, *_ = self.rows[index]
        image = F.pil_to_tensor(Image.open(self.folder / name))
        if self.transform:
            image = self.transform(image)
        return image, self.target_transform(int(label)) if self.target_transform else int(label)


class Landmarks(Annotated):
    """Faces with points on them, as a dictionary that goes through the transforms."""

    def __getitem__(self, index):
        name, _, *values = self.rows[index]
        points = np.array([values], dtype=float).reshape(-1, 2) * 70
        sample = {"image": np.asarray(Image.open(self.folder / name)), "landmarks": points}
        return self.transform(sample) if self.transform else sample


class Rescale:
    def __init__(self, size):
        self.size = size

    def __call__(self, sample):
        image, (height, width) = sample["image"], sample["image"].shape[:2]
        scale = self.size / min(height, width)
        tall, wide = int(height * scale), int(width * scale)
        resized = np.asarray(Image.fromarray(image).resize((wide, tall))) / 255.0
        return {"image": resized, "landmarks": sample["landmarks"] * [wide / width, tall / height]}


class CropSomewhere:
    def __init__(self, size):
        self.size = size

    def __call__(self, sample):
        height, width = sample["image"].shape[:2]
        top, left = np.random.randint(0, height - self.size), np.random.randint(0, width - self.size)
        image = sample["image"][top : top + self.size, left : left + self.size]
        return {"image": image, "landmarks": sample["landmarks"] - [left, top]}


class ToTensors:
    def __call__(self, sample):
        image = torch.from_numpy(sample["image"].transpose((2, 0, 1)))
        return {"image": image, "landmarks": torch.from_numpy(sample["landmarks"])}


class FromFolder(Dataset):
    """Low and high resolution of the brightness of one image."""

    def __init__(self, folder, input_transform, target_transform):
        self.paths = sorted(folder.iterdir())
        self.input_transform, self.target_transform = input_transform, target_transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        image = Image.open(self.paths[index]).convert("YCbCr").split()[0]
        return self.input_transform(image), self.target_transform(image.copy())


class Pedestrians(Dataset):
    """Images, masks of instances, boxes, as a detector takes them."""

    def __init__(self, root, transforms):
        self.root, self.transforms = root, transforms

    def __len__(self):
        return NUM_FILES

    def __getitem__(self, index):
        image = tv_tensors.Image(F.pil_to_tensor(Image.open(self.root / "flat" / f"{index}.png")))
        mask = F.pil_to_tensor(Image.open(self.root / "masks" / f"{index}.png"))
        masks = (mask == torch.unique(mask)[1:, None, None]).to(torch.uint8)
        target = {
            "boxes": tv_tensors.BoundingBoxes(
                [[8, 5, 39, 29], [30, 35, 69, 59]], format="XYXY", canvas_size=image.shape[-2:]
            ),
            "masks": tv_tensors.Mask(masks),
            "labels": torch.ones((len(masks),), dtype=torch.int64),
            "image_id": index,
        }
        if self.transforms is not None:
            image, target = self.transforms(image, target)
        return image, target


class Segmented(Dataset):
    """An image and the classes of its pixels, transformed together."""

    def __init__(self, root, transforms):
        self.root, self.transforms = root, transforms

    def __len__(self):
        return NUM_FILES

    def __getitem__(self, index):
        image = Image.open(self.root / "flat" / f"{index}.png").convert("RGB")
        return self.transforms(image, Image.open(self.root / "masks" / f"{index}.png"))


class Chained:
    """Several operations on an image and its mask, one after the other."""

    def __init__(self, *transforms):
        self.transforms = transforms

    def __call__(self, image, target):
        for transform in self.transforms:
            image, target = transform(image, target)
        return image, target


def resized_somehow(low, high):
    def resize(image, mask):
        size = random.randint(low, high)
        return F.resize(image, size), F.resize(mask, size, interpolation=T.InterpolationMode.NEAREST)

    return resize


def flipped_somehow(image, mask):
    return (F.hflip(image), F.hflip(mask)) if random.random() < 0.5 else (image, mask)


def cropped_somehow(size):
    def crop(image, mask):
        short = [max(0, size - side) for side in image.size]
        image, mask = F.pad(image, [0, 0, *short], fill=0), F.pad(mask, [0, 0, *short], fill=255)
        box = T.RandomCrop.get_params(image, (size, size))
        return F.crop(image, *box), F.crop(mask, *box)

    return crop


def as_floats(image, mask):
    image = F.convert_image_dtype(F.pil_to_tensor(image), torch.float)
    mask = torch.as_tensor(np.array(mask), dtype=torch.int64)
    return F.normalize(image, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)), mask


class Scaled(Dataset):
    """Image and mask as arrays of half the size."""

    def __init__(self, root, scale=0.5):
        self.root, self.scale = root, scale

    def __len__(self):
        return NUM_FILES

    def _open(self, folder, index, how):
        image = Image.open(self.root / folder / f"{index}.png")
        return np.asarray(image.resize([int(self.scale * side) for side in image.size], resample=how))

    def __getitem__(self, index):
        image = self._open("flat", index, Image.BICUBIC).transpose((2, 0, 1)) / 255.0
        mask = self._open("masks", index, Image.NEAREST)
        return {"image": torch.as_tensor(image.copy()).float(), "mask": torch.as_tensor(mask.copy()).long()}


class Prompted(Dataset):
    """A few images of one thing, and the words for it."""

    def __init__(self, root, transforms):
        self.paths, self.image_transforms = sorted((root / "flat").iterdir()), transforms

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        image = Image.open(self.paths[index]).convert("RGB")
        words = torch.tensor([list(b"a photo of a dog"[:12])])
        return {"instance_images": self.image_transforms(image), "instance_prompt_ids": words}


class TwoDomains(Dataset):
    """An image of each of two domains, the second chosen at random."""

    def __init__(self, root, transform):
        self.paths, self.transform = sorted((root / "flat").iterdir()), transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        other = random.randint(0, len(self.paths) - 1)
        pair = [Image.open(self.paths[place]).convert("RGB") for place in (index, other)]
        return {"A": self.transform(pair[0]), "B": self.transform(pair[1])}


class Matched(Dataset):
    """Two digits, and whether they are the same, chosen at random."""

    def __init__(self):
        self.inner = mnist(T.ToTensor())

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        first, label = self.inner[random.randint(0, len(self.inner) - 1)]
        alike = [place for place, other in enumerate(self.inner.targets) if (other == label) == (index % 2 == 0)]
        return first, self.inner[random.choice(alike)][0], torch.tensor(index % 2, dtype=torch.float)


class Triplets(Dataset):
    """An anchor with another digit of its class and one of a different class."""

    def __init__(self, transform):
        self.inner, self.transform = mnist(), transform

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        labels = self.inner.targets.numpy()
        positive = np.random.choice(np.flatnonzero(labels == labels[index]))
        negative = np.random.choice(np.flatnonzero(labels != labels[index]))
        images = [Image.fromarray(self.inner.data[place].numpy()) for place in (index, positive, negative)]
        return tuple(self.transform(image) for image in images), []


class Rows(Dataset):
    """A table in two arrays."""

    def __init__(self, root):
        table = list(csv.reader((root / "table.csv").read_text().splitlines()))
        self.X = np.array([row[2:] for row in table], dtype=np.float32)
        self.y = np.array([[row[1]] for row in table], dtype=np.float32)

    def __len__(self):
        return len(self.X)

    def __getitem__(self, index):
        return [self.X[index], self.y[index]]


class Series(Dataset):
    """Stretches of a series, what comes next, and the hour of each."""

    def __init__(self, length=12, known=6, ahead=4):
        self.length, self.known, self.ahead = length, known, ahead
        self.values = np.sin(np.arange(60)[:, None] / [5, 7])
        self.hours = np.arange(60)[:, None] % 24 / 23 - 0.5

    def __len__(self):
        return len(self.values) - self.length - self.ahead + 1

    def __getitem__(self, index):
        end = index + self.length
        past, future = slice(index, end), slice(end - self.known, end + self.ahead)
        return self.values[past], self.values[future], self.hours[past], self.hours[future]


class Tokens(Dataset):
    """Overlapping blocks of tokens in a mapped file."""

    def __init__(self, root, block=32):
        self.data, self.block = np.memmap(root / "train.bin", dtype=np.uint16, mode="r"), block

    def __len__(self):
        return 40

    def __getitem__(self, index):
        block = torch.from_numpy(self.data[index : index + self.block + 1].astype(np.int64))
        return block[:-1], block[1:]


class Characters(Dataset):
    """Blocks of characters as numbers."""

    def __init__(self, root, block=16):
        self.text, self.block = (root / "lines.json").read_text(), block
        self.numbers = {letter: place for place, letter in enumerate(sorted(set(self.text)))}

    def __len__(self):
        return 40

    def __getitem__(self, index):
        block = [self.numbers[letter] for letter in self.text[index : index + self.block + 1]]
        return torch.tensor(block[:-1], dtype=torch.long), torch.tensor(block[1:], dtype=torch.long)


class ToSort(Dataset):
    """Digits drawn at random, and the same in order."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        digits = torch.randint(3, size=(6,), dtype=torch.long)
        whole = torch.cat((digits, torch.sort(digits)[0]))
        return whole[:-1], whole[1:]


class Sentences(Dataset):
    """Lines of text as numbers of words, of one length or of their own; a table that is decoded at each access."""

    def __init__(self, root, length=0):
        self.lines, self.length = (root / "lines.json").read_text().splitlines(), length

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        line = json.loads(self.lines[index])
        words = [1, *(sum(map(ord, word)) % 97 + 3 for word in line["text"].split()), 2]
        if self.length:
            mask = [1] * len(words) + [0] * (self.length - len(words))
            words = torch.tensor(words + [0] * (self.length - len(words)))
            return {"input_ids": words, "attention_mask": torch.tensor(mask), "labels": torch.tensor(line["label"])}
        return {"input_ids": words, "attention_mask": [1] * len(words), "labels": line["label"]}


class Formatted(Dataset):
    """Examples in a dictionary of columns, which a function of the script's transforms at each access."""

    def __init__(self, root, transform):
        self.paths, self.transform = sorted((root / "flat").iterdir()), transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        examples = {"image": [Image.open(self.paths[index])], "label": [index % 3]}
        return {name: column[0] for name, column in self.transform(examples).items()}


class Waves(Dataset):
    """Recordings in files."""

    def __init__(self, root, transform=None):
        self.paths, self.transform = sorted((root / "waves").iterdir()), transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        wave = torch.from_numpy(np.load(self.paths[index]))
        return (self.transform(wave) if self.transform else wave), 16000, index % 3


class Range(IterableDataset):
    """Numbers of a range, a share for each worker."""

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        return iter(range(3, 30) if worker is None else range(3 + worker.id, 30, worker.num_workers))


# -- transforms and collate functions of the pages' own -------------------------------------------------------------


class Views:
    """Several augmented views of one image."""

    def __init__(self, *transforms):
        self.transforms = transforms

    def __call__(self, image):
        return [transform(image) for transform in self.transforms]


class Blur:
    """A blur of a radius chosen at random."""

    def __init__(self, sigma):
        self.sigma = sigma

    def __call__(self, image):
        from PIL import ImageFilter

        return image.filter(ImageFilter.GaussianBlur(radius=random.uniform(*self.sigma)))


class CropAndInterpolate(T.RandomResizedCrop):
    """A resized crop with an interpolation that is chosen at random."""

    def forward(self, image):
        how = random.choice([T.InterpolationMode.BILINEAR, T.InterpolationMode.BICUBIC])
        box = self.get_params(image, self.scale, self.ratio)
        return F.resized_crop(image, *box, self.size, how)


def spectrum(wave):
    power = torch.stft(wave[:, :1600], 256, 128, window=torch.hann_window(256), return_complex=True).abs().pow(2)
    return (power + 1e-9).log()


def zipped(samples):
    return tuple(zip(*samples, strict=True))


def padded_waves(samples):
    waves = pad_sequence([wave.t() for wave, _, _ in samples], batch_first=True, padding_value=0.0)
    return waves.permute(0, 2, 1), torch.tensor([label for _, _, label in samples])


def padded_words(samples):
    made = {
        name: pad_sequence([torch.tensor(each[name]) for each in samples], batch_first=True)
        for name in ("input_ids", "attention_mask")
    }
    return {**made, "labels": torch.tensor([each["labels"] for each in samples])}


def masked_words(samples):
    words = padded_words(samples)["input_ids"]
    labels, chosen = words.clone(), torch.bernoulli(torch.full(words.shape, 0.15)).bool()
    labels[~chosen] = -100
    replaced = torch.bernoulli(torch.full(words.shape, 0.8)).bool() & chosen
    words[replaced] = 99
    return {"input_ids": words, "labels": labels}


def joined_words(samples):
    """Return all words one after the other, and where each line starts."""
    words = [torch.tensor([len(word) for word in line.split()]) for _, line in samples]
    offsets = torch.tensor([0, *map(len, words)][:-1]).cumsum(dim=0)
    return torch.tensor([label - 1 for label, _ in samples]), torch.cat(words), offsets


def padded_masks(samples):
    """Return images and masks of several sizes in batches as large as the largest."""
    made = []
    for images, fill in zip(zip(*samples, strict=True), (0, 255), strict=True):
        size = [len(images), *(max(sides) for sides in zip(*[image.shape for image in images], strict=True))]
        batch = images[0].new_full(size, fill)
        for image, room in zip(images, batch, strict=True):
            room[..., : image.shape[-2], : image.shape[-1]].copy_(image)
        made.append(batch)
    return tuple(made)


def numbered_boxes(samples):
    """Return images, and the boxes of all with the number of the image in front."""
    boxes = [
        torch.cat([torch.full((len(target["boxes"]), 1), float(number)), target["boxes"].as_subclass(torch.Tensor)], 1)
        for number, (_, target) in enumerate(samples)
    ]
    return torch.stack([image.as_subclass(torch.Tensor) for image, _ in samples]), torch.cat(boxes)


def prompts(samples):
    pixels = torch.stack([each["instance_images"] for each in samples]).to(memory_format=torch.contiguous_format)
    return {"input_ids": torch.cat([each["instance_prompt_ids"] for each in samples]), "pixel_values": pixels.float()}


class Pinned:
    """A batch that knows how to pin itself."""

    def __init__(self, samples):
        inputs, targets = zip(*samples, strict=True)
        self.inp, self.tgt = torch.stack(inputs, 0), torch.stack(targets, 0)

    def pin_memory(self):
        self.inp, self.tgt = self.inp.pin_memory(), self.tgt.pin_memory()
        return self
