"""Two narrow slices of systems: experts chosen anew while decoding, and a cache that knows categories."""
