"""Raw samples and how they come in: arrays, data sets, threads, worker processes."""
