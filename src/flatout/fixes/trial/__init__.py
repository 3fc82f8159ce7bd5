"""Timing with and without a fix inside the training's process, and inputs held fixed to measure ceilings."""
