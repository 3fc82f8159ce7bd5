"""The parts of fixes that change how a model computes: compiled graphs, kept tensors, layouts."""
