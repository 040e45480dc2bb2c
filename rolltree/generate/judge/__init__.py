"""Judges: what says how good rollouts are where no verifier does, by one protocol (`protocol`)."""
