"""Which events a producer sends, and in which order: pure sequences without I/O. One file per workload."""
