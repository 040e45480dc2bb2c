"""How the embedded policy is made and measured: corpus, supervised training, pass@k."""
