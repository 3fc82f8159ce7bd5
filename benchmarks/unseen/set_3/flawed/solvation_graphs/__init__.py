"""Message passing on small organic molecules, target: free energy of solvation (synthetic)."""
