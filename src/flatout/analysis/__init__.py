"""Pure functions from a Run to what it means: statistics and the time account. No torch, no printing."""
