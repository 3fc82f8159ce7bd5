"""Hot numeric functions and loops of a script, compiled by numba with Python's own results."""
