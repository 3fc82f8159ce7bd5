"""One script, several processes: each computes its rows of every batch, with the results of one process."""
