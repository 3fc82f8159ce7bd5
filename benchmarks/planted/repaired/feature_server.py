import argparse
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

WIDTH = 64


class Service:
    """A local TCP service that looks a feature vector up and takes a moment for it."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.socket.accept()
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection):
        with connection:
            while request := connection.recv(8):
                (user,) = struct.unpack("<q", request)
                time.sleep(0.002)
                connection.sendall(np.random.default_rng(user).normal(size=WIDTH).astype("<f4").tobytes())


class Users(Dataset):
    def __init__(self, port, n):
        self.port, self.n = port, n
        self.local = None

    def __len__(self):
        return self.n

    def fetch(self, user):
        if not hasattr(self.local, "connection"):
            self.local.connection = socket.create_connection(("127.0.0.1", self.port))
        self.local.connection.sendall(struct.pack("<q", user))
        answer = b""
        while len(answer) < 4 * WIDTH:
            answer += self.local.connection.recv(4 * WIDTH)
        return torch.from_numpy(np.frombuffer(answer, "<f4").copy())

    def __getitem__(self, user):
        self.local = self.local or threading.local()
        features = self.fetch(user)
        return features, features[:4].sum()

    def __getitems__(self, users):
        if self.local is None:
            self.local = threading.local()
            self.pool = ThreadPoolExecutor(16)
        features = list(self.pool.map(self.fetch, users))
        return [(f, f[:4].sum()) for f in features]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    service = Service()
    loader = DataLoader(Users(service.port, 320), 16, shuffle=True, num_workers=1, persistent_workers=True)
    model = nn.Sequential(nn.Linear(WIDTH, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
