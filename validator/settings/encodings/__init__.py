"""Encodings that several formats share, or that need the array libraries: a format imports them when it reads."""
