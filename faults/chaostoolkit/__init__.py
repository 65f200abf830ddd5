"""An extension of the Chaos Toolkit: data verdicts for experiments, which name its modules in `chaosstreamproof`."""
