"""Steps of torch's optimizers in one pass over memory, with the bits of torch's own loops."""
