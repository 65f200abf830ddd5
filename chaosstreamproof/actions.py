"""Actions for experiments: run a fault of a faults file, heal, and wait until the sidecar has judged."""

from faults.chaostoolkit.actions import heal, run_fault, wait_until_judged

__all__ = ["heal", "run_fault", "wait_until_judged"]
