"""The command line: one file a command, and the only place that prints and exits."""
