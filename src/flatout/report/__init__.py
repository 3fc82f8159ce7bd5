"""A Report in the forms people and programs read: text for a terminal, JSON for a program. Nothing is printed here."""
