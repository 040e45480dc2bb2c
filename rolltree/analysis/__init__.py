"""What rollouts say once they are there: which tokens decided, what another credit or another continuation would say.

Functions here take trees or saved forests and give plain dataclasses; the viewer and the command line draw them.
"""
