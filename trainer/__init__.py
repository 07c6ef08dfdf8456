"""The translation model: its layers, its data feed, training, checkpoints and search. No Beam.

Nothing is imported here, so that the typed options of `trainer.config` come without torch.
"""

import os

# Read by OpenMP when torch loads it: threads that wait for each other sleep. By default they spin,
# and on a machine with other work two threads were slower than one.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
