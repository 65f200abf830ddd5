"""Workloads: what a load consists of, and what a pipeline makes of it. One class in one file each, found by `kinds`."""
