"""Building blocks that turn token ids into a token around the kernels of a model: plain torch."""
