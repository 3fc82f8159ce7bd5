"""What is kept of a data set: rows, samples, columns, and the memory they may take."""
