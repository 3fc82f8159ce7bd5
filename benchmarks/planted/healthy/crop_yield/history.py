import csv
import logging
import os
import time

import torch

log = logging.getLogger("crop_yield")


class History:
    """A line of CSV for each step, a checkpoint for each epoch that was the best so far."""

    def __init__(self, folder):
        self.folder, self.best = folder, float("inf")
        self.file = open(os.path.join(folder, "steps.csv"), "w", newline="")
        self.rows = csv.writer(self.file)
        self.begin = time.time()

    def step(self, number, loss, rate):
        self.rows.writerow([number, f"{time.time() - self.begin:.3f}", f"{loss:.5f}", rate])
        if number % 50 == 0:
            log.info("step %d loss %.5f", number, loss)

    def epoch(self, model, optimizer, error):
        if error < self.best:
            self.best = error
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "error": error}
            torch.save(state, os.path.join(self.folder, "best.pt"))
        self.file.flush()
        return self.best
