"""Which iterations a measurement counts. Does not import torch."""

COLD_ITERATIONS = 3
"""Iterations after attaching that no profile counts: caches, allocators and thread pools are cold."""

MIN_ITERATIONS = COLD_ITERATIONS + 2
"""The fewest that give a profile."""
