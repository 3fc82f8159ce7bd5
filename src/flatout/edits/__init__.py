"""A recipe as changes of the user's own source: found by reading it, made by LibCST, never by running it."""
