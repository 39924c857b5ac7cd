"""One kernel a file: the Triton kernel, what must be warm of it, and how it is launched."""
