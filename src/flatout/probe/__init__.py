"""What runs inside the user's process: clocks, seams, the account of the main thread, samplers of lines."""
