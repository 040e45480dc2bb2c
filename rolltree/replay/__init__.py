"""What survives a step: harvests that wait to be trained, and past ones that teach again."""
