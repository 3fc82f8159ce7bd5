"""Vital-sign records of a dozen clinics; each clinic sees another mix of patients."""
import numpy as np
import torch


def clinic_data(clinics, patients, features, seed=14):
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(features, 6))
    out = []
    for c in range(clinics):
        shift = rng.normal(0, 0.6, features)
        n = int(patients * rng.uniform(0.6, 1.4))
        x = rng.normal(size=(n, features)) + shift
        y = np.argmax(np.sin(x @ w / 3) + 0.3 * rng.normal(size=(n, 6)), 1)
        out.append((torch.tensor(x, dtype=torch.float32), torch.tensor(y)))
    return out


def mlp(features, width=320):
    from torch import nn
    return nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                         nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 6))
