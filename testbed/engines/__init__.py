"""Engines under test as local processes: the reference engine, the mutant, which breaks its guarantee, and production
engines such as Flink."""
