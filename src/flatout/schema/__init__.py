"""Frozen data that every stage speaks: Run, Finding, Report. Standard library only, no I/O but in `codec`."""
