"""Measurements of the project next to its alternatives (`make bench`)."""
