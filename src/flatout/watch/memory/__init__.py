"""The objects that samples are made from, where they lie in memory, and which pages were written."""
