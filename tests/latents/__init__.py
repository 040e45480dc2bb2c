"""Policies that write no tokens."""
