"""The files that samples are made from."""
