"""Faults: broken on purpose, measured to be in, healed, and measured to be gone."""
