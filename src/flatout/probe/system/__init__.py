"""Probes of devices, the interpreter, other ranks and the lines that run."""
