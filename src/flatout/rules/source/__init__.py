"""What rules read in the user's source: statements, loops and their turns, chains of parts, where padding is done."""
