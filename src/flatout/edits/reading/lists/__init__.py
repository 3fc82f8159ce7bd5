"""Lists that a loop reads: whether they stay as they are while it runs."""
