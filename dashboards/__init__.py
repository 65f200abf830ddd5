"""Alert rules, recording rules and Grafana dashboards as code, built from the catalogue of metrics."""
