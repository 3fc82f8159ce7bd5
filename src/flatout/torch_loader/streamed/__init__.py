"""Streams (iterable data sets) without workers, read ahead by another process, batch by batch as the script would."""
