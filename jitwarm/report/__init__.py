"""Report: results as text. Formatting returns text; printing is the command line's."""
