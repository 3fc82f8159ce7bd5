"""Whose time host code is."""
from flatout.schema.run import Run
def assign_roles(run: Run) -> Run:
    return run
