"""Frame-wise phoneme labelling."""
