"""One observed execution: its start, its guard, its private copy of the world, its end."""
