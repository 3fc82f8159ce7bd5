"""Probes of the backward pass: its nodes by the forward line that made them, and what its gradients are used for."""
