"""The parent: starts the script under observation, gathers what was measured, concludes. Imports no torch."""
