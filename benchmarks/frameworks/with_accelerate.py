"""The same training with Accelerate."""

import torch
from accelerate import Accelerator
from common import Net, loader

torch.manual_seed(0)
accelerator = Accelerator(cpu=True)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
model, optimizer, batches = accelerator.prepare(model, optimizer, loader())
for x, y in batches:
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
