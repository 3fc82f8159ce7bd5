"""What a fix is, where it may act, how fixes are found, and how several are applied."""
