"""Batches on a device: kept there, or sent there ahead of the step."""
