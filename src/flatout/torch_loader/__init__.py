"""Torch's DataLoader from inside: its iterators, workers, seeds and samplers."""
