"""The decision what is done for a loader, and the passes that serve its batches."""
