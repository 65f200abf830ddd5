"""The parts that a configuration is made of: durations, fields, topics, limits, and the errors that refuse them."""
