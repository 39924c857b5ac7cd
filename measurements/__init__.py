"""Measurements of jitwarm itself, run by hand; docs/measurements.md has the figures.

`python -m measurements.NAME` from the root of the checkout; `--help` says what it measures.
"""
