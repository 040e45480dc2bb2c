"""How well the embedded policy does, and how it learns."""
