"""HybridFlow (arXiv 2409.19256) on the clock: resource pools, transfer protocols, resharding, and the search for a
placement."""
