"""The configuration of a pipeline's check: read with :func:`validator.config.load.load`."""
