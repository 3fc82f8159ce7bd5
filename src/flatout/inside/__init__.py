"""For use inside a program or a notebook: record a stretch of the training that runs there."""
