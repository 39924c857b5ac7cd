"""Triton 3.6 to 3.9: keys from its own binder, compiles, hook points, a driver without a GPU."""
