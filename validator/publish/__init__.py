"""What a run publishes after each commit: report, metrics, status page. Start reading at ``publisher``."""
