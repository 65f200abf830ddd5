"""Alert rules, recording rules and Grafana dashboards as code, made from the catalogue of metrics."""
