"""Load generator with a ground truth: sends events that carry ids to Kafka and records the outcome of every send in a
journal.
"""
