"""A data loader measured by itself: no training, no optimizer."""
