"""``streamproof demo``: a whole pipeline on this machine, faults in it, and the sidecar beside it."""
