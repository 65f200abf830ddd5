"""Campaigns: many runs over engines, workloads, guarantees and faults, and the table of their results."""
