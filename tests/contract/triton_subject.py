"""A script: contract kernels on Triton under the stub device; prints one JSON object."""

from __future__ import annotations

import json
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from jitwarm import JitWarmupRegistry, Monitor, device
from jitwarm.contract import (
    TritonJitKernel,
    TritonWarmupTensor,
    WarmupIntRange,
    kernel_launcher,
    triton_scalar_specialization_rep,
)
from jitwarm.plan import make_plan

device.activate("stub", "sm90")


@triton.jit(do_not_specialize=["n"])
def _scale(x_ptr, OUT, n, x_stride0, BLOCK: tl.constexpr, SHIFT: tl.constexpr = 1):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at * x_stride0, mask=at < n)
    tl.store(OUT + at, x + SHIFT, mask=at < n)


class ScaleKernel(TritonJitKernel["ScaleKernel.CompileKey"]):
    """Strided copy with a constant added."""

    kernel = _scale

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        block: int
        stride_class: int
        aligned: bool

    def dispatch(self, *, n, stride, aligned):
        stride_class = triton_scalar_specialization_rep(stride)
        return self.CompileKey(triton.next_power_of_2(n), stride_class, aligned)

    def get_warmup_keys(self):
        return self._trace_dispatch(self.dispatch)(
            n=WarmupIntRange(1, 5), stride=(1, 2, 16), aligned=(True, False)
        )

    def warmup_inputs(self, key):
        return {
            "x": TritonWarmupTensor("float32", aligned=key.aligned, strides=(key.stride_class,)),
            "out": TritonWarmupTensor("float32"),
            "n": key.block,
        }

    @kernel_launcher
    def __call__(self, x, out, n):
        key = self.dispatch(n=n, stride=x.stride(0), aligned=x.data_ptr() % 16 == 0)
        return (triton.cdiv(n, key.block),), {"BLOCK": key.block, "num_warps": 8}, out


class LosingKernel(ScaleKernel):
    """Its inputs lose the block, so `__call__` computes another one."""

    def warmup_inputs(self, key):
        return super().warmup_inputs(key) | {"n": 16}


@triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
@triton.jit
def _tuned(x_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, at, mask=at < n)


class TunedKernel(TritonJitKernel["TunedKernel.CompileKey"]):
    """Block size and evenness come from Triton's own wrappers."""

    kernel = _tuned

    @dataclass(frozen=True)
    class CompileKey:
        n: int

    def get_warmup_keys(self):
        return [self.CompileKey(4), self.CompileKey(5)]

    def warmup_inputs(self, key):
        return {"x": TritonWarmupTensor("int32"), "n": key.n}

    @kernel_launcher
    def __call__(self, x, n):
        return (1,), {}


@triton.jit
def _class_of(n):
    pass


BOUNDARIES = [
    *(-(2**63), -(2**31) - 1, -(2**31), -1, 0, 1, 2, 16, 17),
    *(2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1),
]


def misclassified():
    """Integers with another key than their representative, or with the key of another class."""
    from jitwarm.backends.triton.binder import bind

    wrong, representative_of = [], {}
    for value in BOUNDARIES:
        representative = triton_scalar_specialization_rep(value)
        key = bind(_class_of, (value,), {}).text
        if key != bind(_class_of, (representative,), {}).text:
            wrong.append(value)
        if representative_of.setdefault(key, representative) != representative:
            wrong.append(value)
    return wrong


def in_process_keys(jit):
    """Triton's keys of everything that is in its own cache."""
    return {key for caches in jit.device_caches.values() for key in caches[0]}


def replay():
    """The keys of every launch a caller could make: each point of the space, on real tensors."""
    storage, out = torch.empty(4096), torch.empty(8)
    scale, asked = ScaleKernel(), []
    for n in range(1, 5):
        for stride in (1, 2, 3, 16, 48):
            for offset in (0, 1):
                x = storage[offset::stride]
                before = in_process_keys(_scale)
                assert scale(x, out, n) is out
                asked.append(sorted(in_process_keys(_scale) - before))
    return asked


def unwarmed():
    """Where the monitor saw a launch come from that nobody warmed, line left out."""
    with Monitor("record") as monitor:
        ScaleKernel()(torch.empty(64), torch.empty(64), 64)
    return monitor.events[0].site.partition(":")[0]


def lost_keys():
    """The failures of a plan, and what Triton has compiled for it."""
    registry, before = JitWarmupRegistry(), in_process_keys(_scale)
    with registry.activate():
        LosingKernel().register_warmup()
    failures = [str(error) for _, error in make_plan(registry).failures]
    return failures, sorted(in_process_keys(_scale) - before)


def main():
    from jitwarm.backends.triton.binder import bind_recipe

    scale, tuned = ScaleKernel(), TunedKernel()
    declared = scale.enumerate_keys(None, (), {}).declared
    planned = [bind_recipe(_scale, entry.recipe).in_process for entry in declared]
    scale.warmup()
    warmed = in_process_keys(_scale)
    new = [key for keys in replay() for key in keys]
    jit = _tuned.fn.fn
    tuned.warmup()
    print(
        json.dumps(
            {
                "declared": len(declared),
                "planned_is_warmed": set(planned) == warmed,
                "warmed": len(warmed),
                "compiled_by_launches": new,
                "executors": len(scale._compiled_cache),
                "misclassified": misclassified(),
                "lost": lost_keys(),
                "unwarmed": unwarmed(),
                "tuned": len(in_process_keys(jit)),
                "tuned_recipes": sorted(
                    {type(d.recipe).__name__ for d in tuned.enumerate_keys(None, (), {}).declared}
                ),
            }
        )
    )


if __name__ == "__main__":
    main()
