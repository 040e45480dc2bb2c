"""Every metric with its unit, one sentence and the function that computes it: a file for each group."""
