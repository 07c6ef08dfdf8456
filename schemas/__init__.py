"""What is on disk: Arrow schemas, manifests, merges, vocabularies, and the options of the jobs.

The ground floor of the package: it imports nothing of `rareword` outside this folder, and starts
fast (no Beam, no torch), so that `rareword --help` and every reader of a run directory may use it.
"""
