"""Fault injection: injects faults, verifies with probes that they are active, heals them and verifies the healing."""
