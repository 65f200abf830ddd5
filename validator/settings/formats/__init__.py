"""How the value of a record is encoded: one file per format, found by `kinds`; `seam` is what each answers."""
