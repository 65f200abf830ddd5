"""Which events a producer makes, in which order: pure sequences, no I/O. One file per workload."""
