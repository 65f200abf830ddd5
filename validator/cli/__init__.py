"""The command `streamproof`: parsing and telling, nothing that decides."""
