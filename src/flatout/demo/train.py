"""Train a small CNN on images of handwritten digits."""

import argparse
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

BUNDLED = Path(__file__).parent / "data" / "digits.zip"


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class Resize:
    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        return image.resize((self.size, self.size), Image.BICUBIC)


class ToFloat:
    def __call__(self, image):
        return np.array(image) / 255.0


class Normalize:
    def __init__(self, mean, std):
        self.mean = np.array(mean)
        self.std = np.array(std)

    def __call__(self, image):
        return (image - self.mean) / self.std


class ToTensor:
    def __call__(self, image):
        return torch.tensor(image).permute(2, 0, 1).float()


class ImageDataset(Dataset):
    """Images in one folder per class."""

    def __init__(self, root, transform=None):
        self.classes = sorted(folder.name for folder in Path(root).iterdir() if folder.is_dir())
        self.samples = []
        for label, name in enumerate(self.classes):
            for path in sorted((Path(root) / name).glob("*.png")):
                self.samples.append((path, label))
        self.transform = transform

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        image = Image.open(path).convert("RGB")
        if self.transform is not None:
            image = self.transform(image)
        return image, label


class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=2, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        )
        self.classifier = nn.Linear(32 * 4 * 4, num_classes)

    def forward(self, x):
        x = self.features(x)
        return self.classifier(x.flatten(1))


def train_one_epoch(model, loader, criterion, optimizer, device):
    model.train()
    running_loss, correct = 0.0, 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)

        optimizer.zero_grad()
        outputs = model(images)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()

        running_loss += loss.item()
        correct += (outputs.argmax(dim=1) == labels).sum().item()
    return running_loss / len(loader), correct / len(loader.dataset)


def evaluate(model, loader, criterion, device):
    model.eval()
    running_loss, correct = 0.0, 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        outputs = model(images)
        running_loss += criterion(outputs, labels).item()
        correct += (outputs.argmax(dim=1) == labels).sum().item()
    return running_loss / len(loader), correct / len(loader.dataset)


def train(data, args):
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    mean, std = [0.309, 0.309, 0.309], [0.349, 0.349, 0.349]
    transform = Compose([Resize(64), ToFloat(), Normalize(mean, std), ToTensor()])
    train_set = ImageDataset(data / "train", transform)
    test_set = ImageDataset(data / "test", transform)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=args.batch_size)

    model = Net(len(train_set.classes)).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        loss, acc = train_one_epoch(model, train_loader, criterion, optimizer, device)
        test_loss, test_acc = evaluate(model, test_loader, criterion, device)
        print(
            f"epoch {epoch:2d}: loss {loss:.4f}, accuracy {acc:.3f}, "
            f"test loss {test_loss:.4f}, test accuracy {test_acc:.3f}"
        )
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, "checkpoint.pt")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with train/ and test/")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    if args.data is not None:
        train(args.data, args)
    else:
        with tempfile.TemporaryDirectory() as folder:
            zipfile.ZipFile(BUNDLED).extractall(folder)
            train(Path(folder), args)


if __name__ == "__main__":
    main()
