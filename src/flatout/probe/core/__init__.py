"""The clocks, seams and event log of an observed process, and where its steps end."""
