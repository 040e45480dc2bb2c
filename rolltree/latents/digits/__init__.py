"""The flow model of handwritten digits, a folder that `load_model("digits")` reads; see its README."""
