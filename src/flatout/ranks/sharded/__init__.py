"""Parameters, gradients and optimizer state of which each rank keeps a share."""
