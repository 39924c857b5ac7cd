"""The dashboard: one HTML file that opens without a network (docs/report.md)."""
