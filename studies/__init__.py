"""What the authors measured: exact problems, simulated prompts, schedules in simulated time, boards of all methods.

A study imports the package, never the reverse, and is run from a checkout: `python -m studies.NAME`.
"""
