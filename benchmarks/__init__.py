"""The asv suite: one scenario case a file, one lower-is-better number a track (docs/asv.md)."""
