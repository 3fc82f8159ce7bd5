"""Prepared samples kept on disk between runs, and the keys they are found by."""
