"""Python that a policy wrote, run where it can do no harm: `run.run_python(code, box.Box())`.

Nothing is imported here: the inner process starts from this package and is to start fast.
"""
