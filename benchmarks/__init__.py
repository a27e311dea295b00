"""Measurements of speed and memory. The package never imports them."""
