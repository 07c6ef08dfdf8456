"""The translation model: its layers, its data feed, training, checkpoints and search. No Beam.

Nothing is imported here, so that the typed options of `trainer.config` come without torch.
"""
