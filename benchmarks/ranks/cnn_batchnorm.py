"""A convolutional net with BatchNorm in three forms, SGD with momentum, validation by running averages."""

import torch
from torch import nn

torch.manual_seed(1)
images, labels = torch.randn(90, 3, 12, 12), torch.randint(0, 4, (90,))
model = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
    nn.Conv2d(8, 8, 3, stride=2), nn.BatchNorm2d(8, affine=False, momentum=None), nn.ReLU(),
    nn.Flatten(), nn.Linear(8 * 25, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
for epoch in range(3):
    model.train()
    order = torch.randperm(90)
    for part in order.split(17):
        loss = nn.functional.cross_entropy(model(images[part]), labels[part], label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    schedule.step()
    model.eval()
    with torch.no_grad():
        checked = nn.functional.cross_entropy(model(images), labels)
    print(f"{epoch} {loss.item():.5f} {checked.item():.5f}")
