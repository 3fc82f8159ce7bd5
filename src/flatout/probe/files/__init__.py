"""The user's files, kept as they were while a script is observed."""
