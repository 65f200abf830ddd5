"""streamproof's sidecar: everything that is deployed beside a production pipeline, and nothing else."""

__version__ = "0.1.0"
