"""Sixty input pipelines as the documentation of public projects shows them, on small generated data.

Operations and their parameters are the pages'; files, sizes of data sets and batches are ours. Where a page works with
a package that is not needed to run these tests, the data set is written as that page says the package behaves.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from tests.torchvision_stub import torchvision
from tests.unit.pipeline import documented_data as data
from torch.utils.data import (
    ConcatDataset,
    DistributedSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    random_split,
)
from torchvision.transforms import v2

T = torchvision.transforms
BICUBIC = T.InterpolationMode.BICUBIC
IMAGENET = T.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
HALF = T.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
CIFAR = T.Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
DIGITS = T.Compose([T.ToTensor(), T.Normalize((0.1307,), (0.3081,))])
V2_IMAGENET = [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]


@dataclass(frozen=True)
class Page:
    """One pipeline: where it is shown, what it does, and the data set and options of a DataLoader."""

    source: str
    what: str
    build: Callable[[Path], tuple]
    fast: bool = False
    with_workers: bool = False


def _seeded(length):
    return torch.Generator().manual_seed(length)


def _train(size, *more, interpolation=T.InterpolationMode.BILINEAR, scale=(0.08, 1.0)):
    return T.Compose(
        [
            T.RandomResizedCrop(size, scale=scale, interpolation=interpolation),
            T.RandomHorizontalFlip(),
            *more,
            T.ToTensor(),
            IMAGENET,
        ]
    )


def _eval(resize, size, **options):
    return T.Compose([T.Resize(resize, **options), T.CenterCrop(size), T.ToTensor(), IMAGENET])


def _reference(augmentation, erase=0.0):
    end = [T.PILToTensor(), T.ConvertImageDtype(torch.float), IMAGENET]
    erasing = [T.RandomErasing(p=erase)] if erase else []
    return T.Compose([T.RandomResizedCrop(176), T.RandomHorizontalFlip(0.5), *augmentation, *end, *erasing])


def _jitter(*strength, p=0.8):
    return [T.RandomApply([T.ColorJitter(*strength)], p=p), T.RandomGrayscale(p=0.2)]


def _simclr(root):
    view = T.Compose(
        [
            T.RandomResizedCrop(size=32),
            T.RandomHorizontalFlip(),
            *_jitter(0.8, 0.8, 0.8, 0.2),
            T.GaussianBlur(kernel_size=3),
            T.ToTensor(),
        ]
    )
    return data.cifar(data.Views(view, view)), {"batch_size": 8, "shuffle": True, "drop_last": True}


def _moco(root):
    view = T.Compose(
        [
            T.RandomResizedCrop(96, scale=(0.2, 1.0)),
            *_jitter(0.4, 0.4, 0.4, 0.1),
            T.RandomApply([data.Blur([0.1, 2.0])], p=0.5),
            T.RandomHorizontalFlip(),
            T.ToTensor(),
            IMAGENET,
        ]
    )
    return data.photos(root, data.Views(view, view)), {"batch_size": 4, "shuffle": True, "drop_last": True}


def _dino(root):
    start = [T.RandomHorizontalFlip(p=0.5), *_jitter(0.4, 0.4, 0.2, 0.1)]
    end = T.Compose([T.ToTensor(), IMAGENET])
    blur = [T.RandomApply([data.Blur([0.1, 2.0])], p=p) for p in (1.0, 0.1, 0.5)]
    solarize = T.RandomSolarize(128, p=0.2)

    def view(size, scale, *more):
        return T.Compose([T.RandomResizedCrop(size, scale=scale, interpolation=BICUBIC), *start, *more, end])

    large = [view(96, (0.4, 1.0), blur[0]), view(96, (0.4, 1.0), blur[1], solarize)]
    return data.photos(root, data.Views(*large, *[view(48, (0.05, 0.4), blur[2])] * 4)), {"batch_size": 4}


def _fixmatch(root):
    weak = [T.RandomHorizontalFlip(), T.RandomCrop(size=32, padding=4, padding_mode="reflect")]
    strong, end = [*weak, T.RandAugment(num_ops=2, magnitude=10)], [T.ToTensor(), CIFAR]
    views = data.Views(T.Compose([*weak, *end]), T.Compose([*strong, *end]))
    return data.cifar(views), {"batch_size": 8, "drop_last": True}


def _mixed(root):
    mixing = v2.RandomChoice([v2.CutMix(num_classes=10), v2.MixUp(num_classes=10)])
    dataset = data.photos(root, v2.Compose([v2.PILToTensor(), v2.RandomResizedCrop(64, antialias=True), *V2_IMAGENET]))
    return dataset, {"batch_size": 4, "shuffle": True, "collate_fn": lambda samples: mixing(*default_collate(samples))}


def _detection(root):
    transforms = v2.Compose(
        [
            v2.RandomPhotometricDistort(p=1),
            v2.RandomZoomOut(fill={torchvision.tv_tensors.Image: (123, 117, 104), "others": 0}),
            v2.RandomHorizontalFlip(p=1),
            v2.SanitizeBoundingBoxes(),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )
    return data.Pedestrians(root, transforms), {"batch_size": 2, "collate_fn": data.zipped}


def _pedestrians(root):
    transforms = v2.Compose([v2.RandomHorizontalFlip(0.5), v2.ToDtype(torch.float, scale=True), v2.ToPureTensor()])
    return data.Pedestrians(root, transforms), {"batch_size": 2, "shuffle": True, "collate_fn": data.zipped}


def _segmentation(train):
    start = [data.resized_somehow(40, 120), data.flipped_somehow, data.cropped_somehow(64)] if train else []
    size = 56

    def smaller(image, mask):
        return torchvision.transforms.functional.resize(image, size), torchvision.transforms.functional.resize(
            mask, size, interpolation=T.InterpolationMode.NEAREST
        )

    transforms = data.Chained(*(start or [smaller]), data.as_floats)
    return lambda root: (
        data.Segmented(root, transforms),
        {"batch_size": 4, "shuffle": train, "drop_last": train, "collate_fn": data.padded_masks},
    )


def _super_resolution(root):
    crop = T.CenterCrop(64)
    dataset = data.FromFolder(
        root / "flat", T.Compose([crop, T.Resize(32), T.ToTensor()]), T.Compose([crop, T.ToTensor()])
    )
    return dataset, {"batch_size": 4, "shuffle": True}


def _text_model(root):
    stream = torch.arange(640) % 91
    blocks = stream.view(20, 32)
    return TensorDataset(blocks[:, :-1].contiguous(), blocks[:, 1:].contiguous()), {"batch_size": 4}


def _linear(root):
    features = torch.randn(40, 2, generator=_seeded(2))
    return TensorDataset(features, features @ torch.tensor([[2.0], [-3.4]]) + 4.2), {"batch_size": 10, "shuffle": True}


def _validated(root):
    train, _ = random_split(data.mnist(DIGITS), [20, 4], generator=_seeded(42))
    return train, {"batch_size": 8}


def _imbalanced(root):
    dataset = data.photos(root, _eval(64, 56))
    counts = torch.bincount(torch.tensor(dataset.targets))
    weights = [1.0 / int(counts[label]) for label in dataset.targets]
    return dataset, {"batch_size": 4, "sampler": WeightedRandomSampler(weights, len(weights))}


def _distributed(root):
    dataset = data.photos(root, _train(64))
    sampler = DistributedSampler(dataset, num_replicas=2, rank=0)
    return dataset, {"batch_size": 2, "sampler": sampler, "pin_memory": True}


def _joined(root):
    parts = [data.cifar(T.ToTensor()), data.svhn(T.ToTensor())]
    return ConcatDataset(parts), {"batch_size": 8, "shuffle": True}


def _prompted(root):
    transforms = T.Compose([T.Resize(64), T.RandomCrop(64), T.ToTensor(), T.Normalize([0.5], [0.5])])
    return data.Prompted(root, transforms), {"batch_size": 1, "shuffle": True, "collate_fn": data.prompts}


def _food(root):
    crop = T.Compose([T.RandomResizedCrop(64), T.ToTensor(), HALF])

    def transforms(examples):
        examples["pixel_values"] = [crop(image.convert("RGB")) for image in examples.pop("image")]
        return examples

    return data.Formatted(root, transforms), {"batch_size": 4, "shuffle": True}


def _one_hot(label):
    return torch.zeros(10, dtype=torch.float).scatter_(0, torch.tensor(int(label)), value=1)


def _rgb(image):
    return image.convert("RGB")


_SHUFFLED = {"batch_size": 8, "shuffle": True}
_FOUR = {"batch_size": 4, "shuffle": True}


def _on(dataset, transform, options=_SHUFFLED):
    return lambda root: (dataset(transform), options)


def _photos(transform, options=_FOUR):
    return lambda root: (data.photos(root, transform), options)


def _text(root):
    lines = [(1 + number % 4, "one two three four five six seven eight"[: 13 + number]) for number in range(24)]
    return lines, {"batch_size": 8, "collate_fn": data.joined_words}


AUGMENTED = T.Compose([T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(), T.ToTensor(), CIFAR])

PAGES = [
    Page("PyTorch examples, mnist/main.py", "MNIST, to tensor, normalize", _on(data.mnist, DIGITS), True, True),
    Page("PyTorch tutorials, quickstart", "Fashion-MNIST, to tensor", _on(data.fashion, T.ToTensor()), True),
    Page(
        "PyTorch tutorials, Transforms",
        "Fashion-MNIST, one-hot labels by `target_transform`",
        lambda root: (data.fashion(T.ToTensor(), T.Lambda(_one_hot)), _SHUFFLED),
    ),
    Page(
        "PyTorch tutorials, Datasets & DataLoaders",
        "images named in a CSV file",
        lambda root: (data.Annotated(root), _FOUR),
        with_workers=True,
    ),
    Page(
        "PyTorch tutorials, Training a Classifier",
        "CIFAR-10, to tensor, normalize",
        _on(data.cifar, T.Compose([T.ToTensor(), HALF]), _FOUR),
    ),
    Page("PyTorch tutorials, Transfer Learning, train", "folder, random crop to 224, flip", _photos(_train(224))),
    Page("PyTorch tutorials, Transfer Learning, val", "folder, resize 256, crop 224", _photos(_eval(256, 224))),
    Page(
        "PyTorch tutorials, Writing Custom Datasets",
        "dictionaries through Rescale, RandomCrop (NumPy), ToTensor",
        lambda root: (
            data.Landmarks(root, T.Compose([data.Rescale(256), data.CropSomewhere(224), data.ToTensors()])),
            _FOUR,
        ),
    ),
    Page(
        "PyTorch tutorials, What is torch.nn really?",
        "tensors in memory",
        lambda root: (TensorDataset(torch.rand(40, 784, generator=_seeded(1)), torch.arange(40) % 10), _SHUFFLED),
        True,
        True,
    ),
    Page("PyTorch tutorials, Object Detection Finetuning, train", "v2, image and target", _pedestrians),
    Page(
        "ultralytics/yolov5, collate_fn, validation",
        "boxes of all images joined in collate",
        lambda root: (data.Pedestrians(root, None), {"batch_size": 4, "collate_fn": data.numbered_boxes}),
    ),
    Page("PyTorch tutorials, Text classification", "words in a list, joined in collate", _text, True),
    Page(
        "PyTorch tutorials, Spatial Transformer Networks",
        "MNIST, four workers in the page",
        _on(data.mnist, DIGITS, {"batch_size": 6, "shuffle": True}),
        with_workers=True,
    ),
    Page(
        "Machine Learning Mastery, PyTorch tutorial, CSVDataset",
        "rows of a table in NumPy arrays",
        lambda root: (data.Rows(root), _FOUR),
        True,
    ),
    Page(
        "PyTorch examples, imagenet/main.py, train, distributed",
        "folder, random crop, flip, DistributedSampler",
        _distributed,
    ),
    Page(
        "PyTorch examples, imagenet/main.py, val",
        "folder, resize 256, crop 224, in order",
        _photos(_eval(256, 224), {"batch_size": 4}),
        with_workers=True,
    ),
    Page(
        "PyTorch examples, dcgan/main.py",
        "folder, resize 64, crop 64",
        _photos(T.Compose([T.Resize(64), T.CenterCrop(64), T.ToTensor(), HALF])),
    ),
    Page(
        "adambielski/siamese-triplet, TripletMNIST",
        "digits chosen at random by NumPy",
        lambda root: (data.Triplets(DIGITS), _SHUFFLED),
    ),
    Page("PyTorch examples, word_language_model", "blocks of tokens (as a TensorDataset)", _text_model),
    Page(
        "PyTorch examples, siamese_network",
        "pairs of digits chosen at random",
        lambda root: (data.Matched(), _SHUFFLED),
    ),
    Page("PyTorch examples, super_resolution", "one image at two sizes", _super_resolution, with_workers=True),
    Page(
        "PyTorch examples, fast_neural_style",
        "folder, resize, crop, times 255 by a lambda",
        _photos(T.Compose([T.Resize(64), T.CenterCrop(64), T.ToTensor(), T.Lambda(lambda x: x.mul(255))])),
    ),
    Page("PyTorch docs, torch.utils.data, IterableDataset", "a range", lambda root: (data.Range(), {}), True),
    Page(
        "PyTorch docs, torch.utils.data, memory pinning",
        "tensors in memory, batches of a type of the page's own",
        lambda root: (
            TensorDataset(torch.arange(50.0).view(10, 5), torch.arange(50.0).view(10, 5)),
            {"batch_size": 2, "collate_fn": data.Pinned, "pin_memory": True},
        ),
        True,
    ),
    Page("PyTorch docs, torch.utils.data, ConcatDataset", "CIFAR-10 and SVHN", _joined),
    Page("PyTorch docs, torch.utils.data, WeightedRandomSampler", "folder, classes of unlike size", _imbalanced),
    Page(
        "TorchVision docs, Getting started with transforms v2",
        "v2, random crop 224, flip",
        _photos(v2.Compose([v2.PILToTensor(), v2.RandomResizedCrop((224, 224), antialias=True), *V2_IMAGENET])),
    ),
    Page("TorchVision docs, transforms v2, detection", "distort, zoom out, flip, boxes and masks", _detection),
    Page("TorchVision docs, CutMix and MixUp", "random crop, and mixing in collate", _mixed),
    Page(
        "zhouhaoyi/Informer2020, Dataset_ETT_hour",
        "windows of a series in a NumPy array",
        lambda root: (data.Series(), {**_SHUFFLED, "drop_last": True}),
        True,
    ),
    Page("TorchVision references, classification, default", "random crop, flip", _photos(_reference([]))),
    Page("TorchVision references, classification, `ra`", "RandAugment", _photos(_reference([T.RandAugment()]))),
    Page(
        "TorchVision references, classification, `imagenet`",
        "AutoAugment",
        _photos(_reference([T.AutoAugment(T.AutoAugmentPolicy.IMAGENET)])),
    ),
    Page(
        "TorchVision references, classification, `ta_wide`",
        "TrivialAugmentWide, RandomErasing",
        _photos(_reference([T.TrivialAugmentWide()], 0.1)),
    ),
    Page("TorchVision references, segmentation, train", "image and mask, Python's random", _segmentation(True)),
    Page("TorchVision references, segmentation, eval", "image and mask", _segmentation(False)),
    Page("Lightning docs, MNISTDataModule", "MNIST, random_split", _validated, True),
    Page(
        "karpathy/minGPT, CharDataset",
        "blocks of characters, looked up in `__getitem__`",
        lambda root: (data.Characters(root), _SHUFFLED),
        with_workers=True,
    ),
    Page("kuangliu/pytorch-cifar, main.py", "CIFAR-10, random crop, flip", _on(data.cifar, AUGMENTED), True, True),
    Page(
        "Hugging Face docs, image classification",
        "`with_transform`, random crop (map-style equivalent)",
        _food,
    ),
    Page(
        "Hugging Face docs, preprocessing text, `padding='max_length'`",
        "tokens of one length, `with_format('torch')` (map-style equivalent)",
        lambda root: (data.Sentences(root, 64), _SHUFFLED),
        with_workers=True,
    ),
    Page(
        "Hugging Face docs, DataCollatorWithPadding",
        "tokens padded in collate (map-style equivalent)",
        lambda root: (data.Sentences(root), {**_SHUFFLED, "collate_fn": data.padded_words}),
    ),
    Page(
        "Hugging Face docs, masked language modelling",
        "words masked in collate (map-style equivalent)",
        lambda root: (data.Sentences(root), {**_SHUFFLED, "collate_fn": data.masked_words}),
    ),
    Page("Hugging Face diffusers docs, DreamBooth", "random crop, prompts, collate of its own", _prompted),
    Page(
        "torchaudio tutorials, speech command classification",
        "waveforms padded in collate",
        lambda root: (data.Waves(root), {**_FOUR, "collate_fn": data.padded_waves}),
    ),
    Page(
        "torchaudio tutorials, feature extraction",
        "spectrograms by a short-time Fourier transform",
        lambda root: (data.Waves(root, data.spectrum), _FOUR),
        with_workers=True,
    ),
    Page("sthalles/SimCLR, contrastive views", "CIFAR-10, two views of colour jitter and blur", _simclr),
    Page("facebookresearch/moco, main_moco.py", "folder, two views, blur by Python's random", _moco),
    Page("facebookresearch/dino, multi-crop", "folder, six views", _dino),
    Page(
        "facebookresearch/mae, main_pretrain.py",
        "folder, bicubic random crop 224, flip",
        _photos(_train(224, interpolation=BICUBIC, scale=(0.2, 1.0))),
    ),
    Page(
        "timm, create_transform, training",
        "crop with a random interpolation, RandAugment, RandomErasing",
        _photos(T.Compose([data.CropAndInterpolate(96), T.RandAugment(), T.ToTensor(), IMAGENET, T.RandomErasing()])),
    ),
    Page(
        "timm, create_transform, evaluation",
        "folder, bicubic resize 248, crop 224",
        _photos(_eval(248, 224, interpolation=BICUBIC)),
    ),
    Page(
        "openai/CLIP, clip.load",
        "folder, bicubic resize, crop, conversion by a function",
        _photos(T.Compose([T.Resize(224, BICUBIC), T.CenterCrop(224), _rgb, T.ToTensor(), IMAGENET])),
    ),
    Page("kekmodel/FixMatch-pytorch", "CIFAR-10, a weak and a strong view", _fixmatch),
    Page("d2l.ai, Fashion-MNIST", "resize 64, to tensor", _on(data.fashion, T.Compose([T.Resize(64), T.ToTensor()]))),
    Page("d2l.ai, linear regression", "tensors in memory, `load_array`", _linear, True),
    Page(
        "karpathy/nanoGPT, train.bin",
        "overlapping blocks of a mapped file (as a Dataset)",
        lambda root: (data.Tokens(root), _SHUFFLED),
        True,
        True,
    ),
    Page("karpathy/minGPT, SortDataset", "digits drawn in `__getitem__`", lambda root: (data.ToSort(), _SHUFFLED)),
    Page("milesial/Pytorch-UNet", "image and mask, resized, as a dictionary", lambda root: (data.Scaled(root), _FOUR)),
    Page(
        "junyanz/pytorch-CycleGAN-and-pix2pix, unaligned",
        "an image of each domain, the second at random",
        lambda root: (data.TwoDomains(root, T.Compose([T.Resize(70), T.RandomCrop(64), T.ToTensor(), HALF])), _FOUR),
    ),
]
