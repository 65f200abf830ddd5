"""Benchmarks of the sidecar. Throughput is compared with a plain read of the same topics in the same run."""
