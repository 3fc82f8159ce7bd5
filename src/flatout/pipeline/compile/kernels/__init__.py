"""One operation of a transform a file, done to a whole batch."""
