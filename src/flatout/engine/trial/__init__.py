"""The search for a recipe: trials, their timing, their comparison, their proof."""
