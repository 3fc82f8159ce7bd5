"""Probes of DataLoaders, data sets and worker processes."""
