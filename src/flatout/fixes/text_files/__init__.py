"""The parts of buffered-files: text that is written a moment after the script has flushed it."""
