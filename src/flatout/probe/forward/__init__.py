"""Probes of work in the forward pass that could be spared."""
