"""``streamproof demo``: a complete pipeline on this machine, with faults and the sidecar."""
