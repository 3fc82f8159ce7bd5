"""One execution taken down step by step, to be compared with another."""
