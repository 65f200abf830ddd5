"""Load with a ground truth: events that carry ids, sent to Kafka, and a journal of what became of every send."""
