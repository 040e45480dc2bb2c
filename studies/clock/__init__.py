"""The virtual clock: `rolltree.control.schedule` in simulated time; `python -m studies.clock`."""
