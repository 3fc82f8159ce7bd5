"""A file that is read and decoded again for each sample, decoded once."""
