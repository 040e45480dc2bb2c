"""Filters that serve one published method each; what several share stands one folder up."""
