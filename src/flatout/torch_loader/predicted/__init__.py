"""Batches of random samples made early by other processes, from predicted states of the random streams."""
