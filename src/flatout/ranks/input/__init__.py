"""Samples of loaders without workers, divided among the ranks: each is made by one of them, and sent to the others."""
