"""Systems that serve requests as they come, on the clock: pools with roles, transfers, growth and shrinkage."""
