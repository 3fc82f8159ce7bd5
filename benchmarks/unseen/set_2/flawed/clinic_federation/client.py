import copy

import torch
from torch.utils.data import DataLoader


class Client:
    def __init__(self, name, data, batch_size=32, local_epochs=1, lr=0.05, num_workers=2):
        self.name, self.data = name, data
        self.batch_size, self.local_epochs, self.lr = batch_size, local_epochs, lr
        self.num_workers = num_workers

    def loader(self):
        return DataLoader(self.data, batch_size=self.batch_size, shuffle=True,
                          num_workers=self.num_workers)  # <<

    def fit(self, global_model):
        model = copy.deepcopy(global_model)
        model.train()
        opt = torch.optim.SGD(model.parameters(), lr=self.lr, momentum=0.9)
        total = 0.0
        for _ in range(self.local_epochs):
            for x, y in self.loader():  # <<
                loss = torch.nn.functional.cross_entropy(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item() * len(x)
        return model.state_dict(), len(self.data), total / (self.local_epochs * len(self.data))
