"""One file per published method, and the registry that finds them."""
