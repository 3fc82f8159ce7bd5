"""Water level forecast, 6 gauges, LSTM. Runs on the office PC that is rebooted without warning,
therefore the state goes to disk regularly and training can resume from it."""
import gzip
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn

SEQ = 16
BATCH = 16
TOTAL_STEPS = 700
SAVE_EVERY = 20


def gauge_series(hours=9000, seed=6):
    rng = np.random.default_rng(seed)
    rain = rng.gamma(0.15, 3.0, hours)
    levels = np.zeros((hours, 6))
    for g in range(6):
        kernel = np.exp(-np.arange(72) / (8 + 5 * g))
        levels[:, g] = np.convolve(np.roll(rain, 3 * g), kernel)[:hours]
    levels += 0.05 * rng.normal(size=levels.shape)
    data = np.column_stack([levels, rain])
    return torch.tensor((data - data.mean(0)) / data.std(0), dtype=torch.float32)


class GaugeLSTM(nn.Module):
    def __init__(self, n_in=7, hidden=224):
        super().__init__()
        self.rnn = nn.LSTM(n_in, hidden, num_layers=2, batch_first=True)
        self.out = nn.Linear(hidden, 6)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(h[:, -1])


class Checkpointer:
    def __init__(self, folder):
        self.path = os.path.join(folder, "state.pt.gz")

    def save(self, step, model, optimizer, losses):
        tmp = self.path + ".tmp"
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "losses": losses}
        with gzip.open(tmp, "wb") as f:  # <<
            torch.save(state, f)  # <<
        os.replace(tmp, self.path)

    def resume(self, model, optimizer):
        if not os.path.exists(self.path):
            return 0, []
        with gzip.open(self.path, "rb") as f:
            state = torch.load(f)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return state["step"], state["losses"]


def train(folder):
    torch.manual_seed(6)
    series = gauge_series()
    n_train = 8000
    model = GaugeLSTM()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    ckpt = Checkpointer(folder)
    start, losses = ckpt.resume(model, optimizer)
    offsets = torch.arange(SEQ)

    for step in range(start + 1, TOTAL_STEPS + 1):
        first = torch.randint(0, n_train - SEQ - 6, (BATCH,))
        x = series[first[:, None] + offsets]
        y = series[first + SEQ + 5, :6]
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

        if step % SAVE_EVERY == 0:
            ckpt.save(step, model, optimizer, losses)  # <<
        if step % 100 == 0:
            print(f"step {step}: mse {np.mean(losses[-100:]):.4f}")

    with torch.no_grad():
        first = torch.arange(n_train, len(series) - SEQ - 6, 3)
        pred = model(series[first[:, None] + offsets])
        print(f"test mse {nn.functional.mse_loss(pred, series[first + SEQ + 5, :6]).item():.4f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        train(work)
