"""flatout makes PyTorch training run flat out: it measures, names the cause, and proves the cure."""

__all__ = ["__version__"]

__version__ = "0.1.0"
