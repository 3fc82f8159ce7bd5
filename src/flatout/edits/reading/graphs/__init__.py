"""Whether somebody may see that a value has no graph, or that a gradient is not computed."""
