"""Prove: which keys every launch that a configuration admits needs, compared with the plan.

`envelope` says what one call site can launch, `forms` what decides the class of an argument; the
rest walks the points of envelopes, asks the compiler's own binder for their keys, and says in
findings what is missing, unreached or unstable.
"""
