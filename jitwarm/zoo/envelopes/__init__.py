"""Envelopes: everything that the steps of the models can launch, as `jitwarm prove` walks it.

One module a part of a step. Each function takes the limits of the engine and what differs between
models, and returns the envelope of one call site: a few whole numbers (rows, tokens, bounds of a
slice), what limits them, and the arguments that the step passes for them. Tensors are stand-ins
that say what a slice of a buffer says: its shape, its strides, whether 16 divides its address.
"""
