"""Rolltree inside other trainers: TRL and verl, their reward functions and their data sets."""
