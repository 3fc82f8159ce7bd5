"""Cures of findings that are changes of the lines that they name: one file a kind of change."""
