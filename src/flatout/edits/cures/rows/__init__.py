"""Loops over the rows of a tensor, as one operation on all of them."""
