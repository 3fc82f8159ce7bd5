"""The training as a plain loop that times itself, phase by phase."""

import time

import torch
from common import loader

clock = time.perf_counter


def timed(model):
    """Train for all batches and return the seconds of each phase."""
    watch = dict.fromkeys(("input", "forward", "backward", "optimizer", "host"), 0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = iter(loader())
    begin = last = clock()
    while True:
        start = clock()
        try:
            x, y = next(batches)
        except StopIteration:
            break
        got = clock()
        loss = torch.nn.functional.mse_loss(model(x), y)
        forwarded = clock()
        optimizer.zero_grad()
        cleared = clock()
        loss.backward()
        backwarded = clock()
        optimizer.step()
        stepped = clock()
        watch["input"] += got - start
        watch["forward"] += forwarded - got
        watch["backward"] += backwarded - cleared
        watch["optimizer"] += stepped - backwarded + cleared - forwarded
        last = stepped
    watch["host"] = last - begin - sum(watch.values())
    return watch
