"""Calls and operators of one line in a form that comes to the same in less time, wherever the line stands."""
