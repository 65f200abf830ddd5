"""The events that a producer sends, in their order: pure sequences without I/O. One file per workload."""
