"""What a run tells the world after each commit: report, metrics, status page. Start at ``publisher``."""
