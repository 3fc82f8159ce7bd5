"""Predict a diagnosis from the laboratory values of a patient, kept in SQLite."""
import argparse
import os
import random
import sqlite3
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

TESTS = 12


def create_database(path, patients):
    rnd = random.Random(0)
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE patient (id INTEGER PRIMARY KEY, diagnosis INTEGER)")
    db.execute("CREATE TABLE result (patient INTEGER, test INTEGER, value REAL)")
    rows = []
    for p in range(patients):
        diagnosis = rnd.randrange(4)
        db.execute("INSERT INTO patient VALUES (?, ?)", (p, diagnosis))
        rows += [(p, t, rnd.gauss(diagnosis if t % 4 == diagnosis else 0, 1)) for t in range(TESTS)]
    rnd.shuffle(rows)
    db.executemany("INSERT INTO result VALUES (?, ?, ?)", rows)
    db.commit()
    db.close()


class Patients(Dataset):
    def __init__(self, path, ids):
        self.db = sqlite3.connect(path)
        self.ids = ids

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        patient = self.ids[i]
        values = torch.zeros(TESTS)
        query = "SELECT test, value FROM result WHERE patient = ?"
        for test, value in self.db.execute(query, (patient,)):  # <<
            values[test] = value + random.gauss(0, 0.05)
        (diagnosis,) = self.db.execute("SELECT diagnosis FROM patient WHERE id = ?", (patient,)).fetchone()
        return values, diagnosis


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--patients", type=int, default=1280)
    args = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    path = os.path.join(tempfile.mkdtemp(), "lab.db")
    create_database(path, args.patients)
    loader = DataLoader(Patients(path, list(range(args.patients))), batch_size=32, shuffle=True)
    model = nn.Sequential(
        nn.Linear(TESTS, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
        nn.Linear(512, 4),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    for epoch in range(args.epochs):
        correct = 0
        for values, diagnosis in loader:
            logits = model(values)
            loss = nn.functional.cross_entropy(logits, diagnosis)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            correct += int((logits.argmax(1) == diagnosis).sum())
        print(f"epoch {epoch} loss {loss.item():.4f} accuracy {correct / args.patients:.3f}")


main()
