"""Reads from the text whether code has an effect besides its value."""
