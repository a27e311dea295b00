"""Formats of weights, one file for each: they map names and layouts, and read no files."""
