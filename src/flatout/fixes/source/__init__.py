"""Edits of the script's source that are served in place of its files, which stay as they are."""
