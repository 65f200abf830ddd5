"""The command `streamproof`: it parses arguments and prints results. It contains no verification logic."""
