"""A fix as data, where it may act, how it is found, and how several are put in place."""
