import torch
import torch.nn.functional as F


class Clinic:
    def __init__(self, ident, x, y, batch=96, lr=0.05):
        self.ident, self.x, self.y, self.batch, self.lr = ident, x, y, batch, lr

    def __len__(self):
        return len(self.y)

    def train(self, model, local_steps):
        model.train()
        opt = torch.optim.SGD(model.parameters(), lr=self.lr, momentum=0.5)
        total = 0.0
        for _ in range(local_steps):
            rows = torch.randint(len(self), (self.batch,))
            loss = F.cross_entropy(model(self.x[rows]), self.y[rows])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        return total / local_steps
