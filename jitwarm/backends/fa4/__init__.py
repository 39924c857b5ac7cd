"""The flash-attn-4 backend: keys that the library computes itself, compiles with no GPU."""
