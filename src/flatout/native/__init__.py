"""Compiled operations on images and rows, and the memory they work in; knows no transform and no loader."""
