"""Reads from the text what becomes of the state dicts of models."""
