"""Simulated prompts with known, drifting pass rates: what estimators and allocators are held against."""
