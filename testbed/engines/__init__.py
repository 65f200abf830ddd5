"""Engines under test as local processes: the reference, which keeps its guarantee, and the mutant, which breaks it."""
