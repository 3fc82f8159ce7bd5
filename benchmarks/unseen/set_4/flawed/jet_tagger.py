# Jet tagging (signal vs. QCD background) on high level features, big batches
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1234)

N_TRAIN, N_VAL, N_FEAT = 200_000, 20_000, 28
BATCH = 4096
EPOCHS = 10


def make_jets(n):
    y = (torch.rand(n) < 0.5).long()
    x = torch.randn(n, N_FEAT)
    shift = torch.linspace(0.3, -0.2, N_FEAT)
    x = x + y[:, None] * shift
    # substructure: correlated pair for signal
    x[:, 1] += 0.6 * y * x[:, 0]
    return x, y


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(N_FEAT, 48)
        self.hid = nn.Linear(48, 48)
        self.out = nn.Linear(48, 2)

    def forward(self, x):
        x = F.relu(self.inp(x))
        x = F.relu(self.hid(x))
        return self.out(x)


def batch_metrics(logits, y):
    """accuracy, signal efficiency, background rejection of one batch"""
    pred = logits.argmax(dim=1)
    acc = sum(pred == y) / len(y)  # <<
    eff = sum(pred[y == 1]) / sum(y)  # <<
    rej = 1 - sum(pred[y == 0]) / sum(1 - y)  # <<
    return acc.item(), eff.item(), rej.item()


x_train, y_train = make_jets(N_TRAIN)
x_val, y_val = make_jets(N_VAL)
model = Tagger()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
sched = torch.optim.lr_scheduler.StepLR(opt, 4, 0.5)

for epoch in range(EPOCHS):
    model.train()
    order = torch.randperm(N_TRAIN)
    loss_avg = acc_avg = eff_avg = rej_avg = 0.0
    n_batches = 0
    for start in range(0, N_TRAIN - BATCH + 1, BATCH):
        idx = order[start:start + BATCH]
        xb, yb = x_train[idx], y_train[idx]
        logits = model(xb)
        loss = F.cross_entropy(logits, yb)
        opt.zero_grad()
        loss.backward()
        opt.step()

        acc, eff, rej = batch_metrics(logits.detach(), yb)  # <<
        loss_avg += loss.item()
        acc_avg += acc
        eff_avg += eff
        rej_avg += rej
        n_batches += 1
    sched.step()

    model.eval()
    with torch.no_grad():
        val_logits = model(x_val)
        val_loss = F.cross_entropy(val_logits, y_val).item()
        val_acc = (val_logits.argmax(1) == y_val).float().mean().item()
    print(f"Epoch {epoch + 1:02d}: loss={loss_avg / n_batches:.4f} acc={acc_avg / n_batches:.4f} "
          f"eff={eff_avg / n_batches:.4f} rej={rej_avg / n_batches:.4f} | val_loss={val_loss:.4f} val_acc={val_acc:.4f}")
