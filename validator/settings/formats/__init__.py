"""The formats of a record's value, one file per format. `seam` has their interface, and `kinds` finds them."""
