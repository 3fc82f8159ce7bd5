"""Behaviour cloning of planar pushing from camera demonstrations."""
