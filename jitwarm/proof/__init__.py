"""Prove: which keys every launch that a configuration admits needs, compared with the plan.

`envelope` says what one call site can launch, `forms` what decides the class of an argument; the
rest walks the points of envelopes, asks the compiler's own binder for their keys, and says in
findings what is missing, unreached or unstable.
"""

from jitwarm.proof.envelope import Envelope, Ints, Values
from jitwarm.proof.forms import affine, next_power_of_two, pointer
from jitwarm.proof.keyfunction import KeyFunction
from jitwarm.proof.prove import fingerprint, prove, prove_envelopes
from jitwarm.proof.result import KernelProof, Proof

__all__ = [
    "Envelope",
    "Ints",
    "KernelProof",
    "KeyFunction",
    "Proof",
    "Values",
    "affine",
    "fingerprint",
    "next_power_of_two",
    "pointer",
    "prove",
    "prove_envelopes",
]
