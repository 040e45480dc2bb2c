"""A real chat model of 135 million parameters, trained on a processor."""
