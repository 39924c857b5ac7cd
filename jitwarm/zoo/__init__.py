"""Kernels and models that jitwarm ships as subjects. The core never imports them."""
