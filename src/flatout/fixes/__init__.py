"""One file per fix: a plain function that acts in the training's process, and the data that describe it."""
