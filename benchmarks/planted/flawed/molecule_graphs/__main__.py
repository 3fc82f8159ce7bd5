import argparse

from .fit import fit

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="molecule_graphs")
    parser.add_argument("--epochs", type=int, default=200)
    fit(parser.parse_args().epochs)
