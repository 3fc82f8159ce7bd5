import argparse

import torch

from early_stopping.loop import fit

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    torch.manual_seed(0)
    fit(parser.parse_args().epochs)
