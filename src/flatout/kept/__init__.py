"""What a training computes again from the same values, kept: results of functions, outputs of frozen modules."""
