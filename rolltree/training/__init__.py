"""Training: the loop, its steps, what a run keeps on disk. The function is `rolltree.train`."""
