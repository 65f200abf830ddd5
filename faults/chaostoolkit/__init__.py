"""An extension of the Chaos Toolkit: data verdicts for experiments. It imports nothing of the toolkit's."""
