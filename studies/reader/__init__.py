"""A small policy that reads notes, with systematic bugs beside noise: what judges and briefs are tried on."""
