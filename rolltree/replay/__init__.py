"""What survives a step: batches of rollouts on disk, and past ones that are trained on again."""
