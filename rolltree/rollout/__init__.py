"""What collects rollouts: plans become groups, a schedule says when they grow, and batches come out.

Nothing here learns or knows a trainer, so frozen policies are rolled out the same way.
"""
