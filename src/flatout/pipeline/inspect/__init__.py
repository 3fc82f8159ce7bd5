"""What a data set is made from, found without a trace, and whether it is as it was."""
