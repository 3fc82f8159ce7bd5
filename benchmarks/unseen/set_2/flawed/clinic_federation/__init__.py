"""Federated averaging of a cough classifier over the recordings of a dozen clinics."""
