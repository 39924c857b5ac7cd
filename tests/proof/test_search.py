"""Split envelopes against every launch of them, each asked of Triton's own binder."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jitwarm import Envelope, Ints, Values, affine, next_power_of_two, pointer, prove
from jitwarm.backends.triton.binder import bind
from jitwarm.declare import TensorSpec

sys.path.insert(0, str(Path(__file__).parent))

import proof_kernels as k

ROWS = st.sampled_from([1, 2, 4, 6, 8, 16, 24, 64])


@st.composite
def launches(draw):
    """Everything about an envelope of the kernel `numbers`: slices, strides, a block size."""
    return {
        "high": draw(st.integers(1, 40)),
        "most": draw(st.integers(1, 60)),
        "n": (draw(st.integers(-3, 40)), draw(ROWS)),
        "m": draw(ROWS),
        "many": (2**31 - draw(st.integers(0, 70)), draw(st.sampled_from([1, 2]))),
        "offset": (draw(ROWS), draw(ROWS)),
        "is_empty_at_0": draw(st.booleans()),
    }


def envelope_of(given):
    base, row = given["n"]
    wide, step = given["many"]
    left, right = given["offset"]
    by_length = given["is_empty_at_0"]

    def launch(d, p, flag):
        offset, length = left * d + right * p, p if by_length else 1
        return {
            "n": base + row * d,
            "m": given["m"] * p,
            "many": wide + step * d,
            "x_ptr": TensorSpec("int8", aligned=offset % 16 == 0, shape=(length,)),
            "y_ptr": TensorSpec("int16" if flag else "int8"),
            "FLAG": 1 << max(p - 1, 0).bit_length(),
        }

    forms = {
        "n": affine(base, d=row),
        "m": affine(p=given["m"]),
        "many": affine(wide, d=step),
        "x_ptr": pointer(
            offset=affine(d=left, p=right), length=affine(p=1) if by_length else affine(1)
        ),
        "FLAG": next_power_of_two(affine(p=1)),
    }
    high, most = given["high"], given["most"]
    parameters = {"d": Ints(0, high), "p": Ints(0, high), "flag": Values(False, True)}
    return Envelope(
        k.numbers, "", parameters, launch, where=lambda d, p: d + p <= most, forms=forms
    )


def every_key(envelope):
    keys = {}
    d, p, flag = (
        range(len(one)) if isinstance(one, Ints) else one.values
        for one in envelope.parameters.values()
    )
    for point in itertools.product(d, p, flag):
        if envelope.where(*point[:2]):
            arguments = envelope.launch(*point)
            keys.setdefault(bind(k.numbers, (), arguments).text, point)
    return keys


@pytest.mark.triton
@settings(
    max_examples=12,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(launches())
def test_split_and_walked_envelopes_need_the_same_keys_as_the_binder_says(stub, given):
    envelope = envelope_of(given)
    wanted = every_key(envelope)
    module = sys.modules["jitwarm.proof.search"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "WALKED_WITH_FORMS", 0)
        for whole in (module.WHOLE, 0):
            patched.setattr(module, "WHOLE", whole)
            proof = prove(k.numbers, (), envelope)
            assert set(proof.kernels[0].missing_keys) == set(wanted)
            assert proof.kernels[0].verdict == "PROVED"
            assert {f.kind for f in proof.findings} == {"UNDECLARED"}


@pytest.mark.triton
def test_millions_of_points_take_few_launches(stub):
    space = {"tokens": Ints(1, 1 << 20), "rows": Ints(1, 1 << 20)}

    def launch(tokens, rows):
        offset = 4 * rows + 2 * tokens
        spec = TensorSpec("int16", aligned=offset % 16 == 0, shape=(tokens,))
        return {"x_ptr": spec, "n": 3 * rows, "BLOCK": 16}

    forms = {
        "n": affine(rows=3),
        "x_ptr": pointer(offset=affine(rows=4, tokens=2), length=affine(tokens=1)),
    }
    proof = prove(k.copy, (), Envelope(k.copy, "", space, launch, forms=forms))
    (one,) = proof.kernels
    assert (one.verdict, one.needed, one.of) == ("PROVED", 4, 1 << 40)
    assert one.points == 4 + 4 + 512  # each class, the corners, and what is checked


def test_without_a_device_nothing_is_proved(fresh_process):
    text = (
        "import proof_kernels as k\n"
        "from jitwarm import prove\n"
        "from jitwarm.errors import DeviceError\n"
        "try:\n"
        "    prove(k.copy, (), [{'x_ptr': k.X, 'n': 1, 'BLOCK': 16}])\n"
        "except DeviceError as error:\n"
        "    print(error)\n"
    )
    assert "Triton has no device here" in fresh_process(text, path=[Path(__file__).parent])


FINGERPRINT = """
import proof_kernels as k
from jitwarm import Envelope, Ints, KeyFunction, device, prove
device.activate("stub", "sm90")
for function in (
    KeyFunction("stable", lambda n: ("a", n)), KeyFunction("hashed", lambda n: hash(("a", n)))
):
    proof = prove(function, (), Envelope(function, "", {"n": Ints(1, 9)}, lambda n: {"n": n}))
    print(proof.kernels[0].digest)
"""


def test_processes_agree_on_keys_that_depend_on_nothing_else(fresh_process):
    one, two = (
        fresh_process(FINGERPRINT, path=[Path(__file__).parent], PYTHONHASHSEED=seed).split()
        for seed in "12"
    )
    assert one[0] == two[0]
    assert one[1] != two[1]
