"""Canonical keys: the same text in every Triton version and process, and readable back."""

from __future__ import annotations

import re
from unittest import mock

import launch_catalogue as catalogue
import pytest
import torch
from triton.experimental.gluon import language as gl

from jitwarm.backends.triton.binder import bind
from jitwarm.backends.triton.keytext import key_text, parse_key, split_key
from jitwarm.declare import WarmupChoices, declare, launch
from jitwarm.declare.tensor import TensorSpec
from jitwarm.errors import KeyValueError
from jitwarm.keys import key_id
from jitwarm.observe.monitor import Monitor
from jitwarm.plan import make_plan
from jitwarm.registry import JitWarmupRegistry

X = TensorSpec("float32")

# To renew the golden file, run this in tests/backends/triton:
# python -c "import launch_catalogue as c; from jitwarm import device;
# device.activate('stub', 'sm90'); print(*c.lines(), sep='\n')" > golden_keys.txt
GOLDEN = "golden_keys.txt"


@pytest.mark.triton
def test_keys_are_those_of_the_golden_file(stub, here):
    golden = (here / GOLDEN).read_text().splitlines()
    assert len(golden) >= 60
    assert catalogue.lines() == golden


@pytest.mark.parametrize("seed", ["0", "4711"])
def test_keys_do_not_depend_on_the_hash_seed(fresh_process, here, seed):
    text = (
        "import launch_catalogue as c; from jitwarm import device;"
        "device.activate('stub', 'sm90'); print(*c.lines(), sep='\\n')"
    )
    output = fresh_process(text, path=[here], PYTHONHASHSEED=seed)
    assert output == (here / GOLDEN).read_text()


def key_of(here, name):
    return dict(line.split(" => ") for line in (here / GOLDEN).read_text().splitlines())[name]


def rebuilt(text):
    kernel, arguments, settings = split_key(text)
    target, *options = settings.items()
    inner = "; ".join(f"{name}:{value}" for name, value in arguments.items())
    outer = "; ".join([target[1], *(f"{name}={value}" for name, value in options)])
    return f"{kernel}[{inner}]{{{outer}}}"


def test_every_golden_key_can_be_taken_apart_and_put_together(here):
    for line in (here / GOLDEN).read_text().splitlines():
        text = line.split(" => ")[1]
        assert rebuilt(text) == text


def test_a_string_constant_may_hold_every_separator(here):
    kernel, fields = parse_key(key_of(here, "constant separators"))
    assert kernel == "launch_catalogue._one"
    assert fields == {
        "x_ptr": "*fp32/D",
        "VALUE": "constexpr='; y:i32]{cuda:80; k=1'",
        "target": "cuda:90",
    }
    assert parse_key(key_of(here, "constant quotes"))[1]["VALUE"] == "constexpr='a\\'b\"c'"
    assert parse_key(key_of(here, "constant backslash"))[1]["VALUE"] == 'constexpr="\\\\\';"'


def test_an_argument_named_like_an_option_keeps_its_own_field(here):
    _, fields = parse_key(key_of(here, "argument named like an option"))
    assert fields == {
        "x_ptr": "*fp32/D",
        "num_stages": "constexpr=5",
        "target": "i32/D",
        "{target}": "cuda:90",
        "{num_stages}": "5",
    }


def test_a_key_of_another_backend_is_no_obstacle():
    assert split_key("models.Kernel[Key(a=1)]")[0] == "models.Kernel"
    assert split_key("models.Kernel[Key(text=']{')]")[0] == "models.Kernel"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("constant 1", "constant True"),
        ("constant 1", "constant 1.0"),
        ("constant 1", "constant enum"),
        ("constant constexpr", "constant plain 7"),
        ("constant kernel", "constant constexpr kernel"),
        ("argument 17", "do_not_specialize 17"),
        ("argument 17", "argument 2147483648"),
        ("annotated 1", "annotated 17"),
        ("default given", "default changed"),
        ("closure 16", "closure 32"),
        ("option warps 4", "option warps 8"),
    ],
)
def test_different_binaries_have_different_keys(here, one, other):
    assert key_of(here, one) != key_of(here, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("argument 17", "argument 2"),
        ("argument 16", "argument -16"),
        ("option stages then warps", "option warps then stages"),
        ("option warps 4", "option no debug"),
        ("default given", "argument 17"),
        ("pointer int32", "empty tensor"),
    ],
)
def test_equal_binaries_have_equal_keys(here, one, other):
    assert key_of(here, one) == key_of(here, other)


def test_a_constant_that_is_no_value_is_refused(stub):
    with pytest.raises(KeyValueError, match="compared by identity"):
        bind(catalogue._one, (TensorSpec("int8"),), {"VALUE": object()})


def layouts():
    return [
        gl.BlockedLayout([1, 4], [32, 1], [4, 1], [1, 0]),
        gl.BlockedLayout([4, 1], [32, 1], [4, 1], [1, 0]),
        gl.SliceLayout(1, gl.BlockedLayout([4, 1], [32, 1], [4, 1], [1, 0])),
        gl.SwizzledSharedLayout(1, 1, 1, order=[1, 0]),
        gl.AutoLayout(),
    ]


def test_layouts_of_gluon_have_a_text_of_their_own(stub):
    texts = [bind(catalogue._one, (X,), {"VALUE": layout}).text for layout in layouts()]
    assert len(set(texts)) == len(texts)
    value = parse_key(texts[0])[1]["VALUE"]
    assert re.fullmatch(
        r"constexpr=BlockedLayout\(size_per_thread=\[1, 4\], threads_per_warp=\[32, 1\], "
        r"warps_per_cta=\[4, 1\], order=\[1, 0\](, \w+=[^;]*)?\)",
        value,
    )
    assert [rebuilt(text) for text in texts] == texts


def test_layouts_can_be_declared_and_are_watched_under_the_same_key(stub):
    @declare(catalogue._one, name="layouts")
    def cases():
        yield launch(x_ptr=X, VALUE=WarmupChoices(*layouts()))

    registry = JitWarmupRegistry()
    with registry.activate():
        cases.register_warmup()
    plan = make_plan(registry)
    assert plan.failures == ()
    with Monitor("record") as monitor:
        for layout in layouts():
            catalogue._one[(1,)](torch.zeros(4), VALUE=layout)
    compiled = [event.key for event in monitor.events if event.kind == "compile"]
    assert compiled == list(plan.backend_keys)


def test_constants_without_a_text_do_not_share_a_key(stub):
    with Monitor("record") as monitor:
        for value in (mock.sentinel.one, mock.sentinel.other):
            catalogue._one[(1,)](torch.zeros(4), VALUE=value)
    keys = [event.key for event in monitor.events if event.kind == "compile"]
    assert len(set(keys)) == 2
    shown = parse_key(keys[0])[1]["VALUE"]
    assert shown == f"constexpr=<unittest.mock._SentinelObject#{key_id('sentinel.one')[:8]}>"


@pytest.mark.parametrize("kind", [mock.MagicMock, mock.NonCallableMagicMock])
def test_a_constant_that_claims_every_attribute_is_shown_by_its_type(stub, kind):
    caches = catalogue._one.device_caches[0]
    pairs = [("*fp32", "D"), ("constexpr", kind())]
    options = caches[3].parse_options({})
    text = key_text(catalogue._one, pairs, options, caches[3], caches[2], strict=False)
    assert parse_key(text)[1]["VALUE"] == f"constexpr=<unittest.mock.{kind.__name__}>"
