"""The virtual clock: `rolltree.control.schedule` in simulated time, with thousands of engines; `python -m rolltree.lab.clock`."""
