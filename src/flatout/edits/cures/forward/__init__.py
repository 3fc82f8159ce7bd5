"""Cures of findings about what a forward pass computes: one file a kind of change."""
