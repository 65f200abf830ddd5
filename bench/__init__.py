"""Throughput, memory and detection delay, each beside a plain read of the same topics in the same run."""
