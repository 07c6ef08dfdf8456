"""The jobs: one module each with its options, its graph and `run`, and the command line."""
