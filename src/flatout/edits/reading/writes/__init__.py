"""What code writes into: tensors, weights, the state of a model, or nothing."""
