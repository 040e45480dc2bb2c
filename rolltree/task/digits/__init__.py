"""Pictures of digits as a task: a label is asked, an image of 8 × 8 pixels answers."""
