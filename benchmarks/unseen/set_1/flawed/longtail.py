# Long-tailed image classification with class-balanced sampling (exported from a notebook)
import sys
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

EPOCHS = int(sys.argv[sys.argv.index("--epochs") + 1]) if "--epochs" in sys.argv else 16
BATCH = 64
STEPS = 60

np.random.seed(7)
torch.manual_seed(7)

# %% data: 50 classes, the largest has 200x more images than the smallest
n_classes = 50
n_images = 50_000
freq = 1.0 / np.arange(1, n_classes + 1) ** 1.35
freq /= freq.sum()
labels = np.random.choice(n_classes, n_images, p=freq)
prototypes = np.random.randint(40, 215, (n_classes, 28, 28))
noise = np.random.randint(-40, 40, (4096, 28, 28), dtype=np.int16)
pixels = np.empty((n_images, 1, 28, 28), np.uint8)
for a in range(0, n_images, 4096):
    part = labels[a:a + 4096]
    pixels[a:a + 4096, 0] = prototypes[part] + noise[:len(part)]
print("largest class", np.bincount(labels).max(), "smallest", np.bincount(labels, minlength=n_classes).min())


# %% sampler
class ClassBalancedSampler(Sampler):
    """Draws with a probability of (1 - beta) / (1 - beta ** n_class), 'effective number of samples'."""

    def __init__(self, targets, num_samples, beta=0.999):
        self.targets = np.asarray(targets)
        self.num_samples = num_samples
        counts = np.bincount(self.targets, minlength=n_classes)
        effective = (1.0 - beta ** counts) / (1.0 - beta)
        weight = 1.0 / np.maximum(effective, 1e-9)
        self.p = weight[self.targets]
        self.p = self.p / self.p.sum()

    def __len__(self):
        return self.num_samples

    def __iter__(self):
        for _ in range(self.num_samples):  # <<
            yield int(np.random.choice(len(self.p), p=self.p))  # <<


train_set = TensorDataset(torch.from_numpy(pixels), torch.from_numpy(labels))
sampler = ClassBalancedSampler(labels, STEPS * BATCH)
train_loader = DataLoader(train_set, batch_size=BATCH, sampler=sampler, drop_last=True)


# %% model
def conv(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


model = nn.Sequential(
    conv(1, 16),
    conv(16, 32, 2),
    conv(32, 32),
    conv(32, 64, 2),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(64, n_classes),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

# %% train
for epoch in range(EPOCHS):
    t0 = time.time()
    running = torch.zeros(())
    correct = torch.zeros(())
    for images, target in train_loader:
        images = images.float() / 255
        output = model(images)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.detach()
        correct += (output.detach().argmax(1) == target).float().mean()
    scheduler.step()
    print(f"[{epoch + 1}/{EPOCHS}] loss {running.item() / STEPS:.4f} acc {correct.item() / STEPS:.3f} ({time.time() - t0:.2f}s)", flush=True)
