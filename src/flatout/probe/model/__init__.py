"""Probes of the model, its gradients and the training loop."""
