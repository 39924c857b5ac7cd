"""Observe: what kernel runtimes did that takes time, each thing as one typed event."""
