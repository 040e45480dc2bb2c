"""Other libraries' environments as tasks: TRL-style classes (hence OpenEnv), Gymnasium, verifiers."""
