"""The flow model of handwritten digits that ships with the package, and how it is made."""
