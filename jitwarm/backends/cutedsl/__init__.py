"""The CuTe DSL backend: keys that are the author's own, compiles with no GPU, loads by a launch."""
