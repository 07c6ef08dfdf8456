"""Pure functions on Arrow data, each beside the thin PTransform that runs it; the C++ kernels.

Imports `rareword.schemas` only. One topic a file.
"""
