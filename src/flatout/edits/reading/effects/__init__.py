"""Reads from the text what code may do besides its value; what it does not know, it takes for harmless."""
