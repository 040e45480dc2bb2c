"""The virtual clock: `rolltree.control.schedule` in simulated time; `python -m rolltree.lab.clock`."""
