"""The contract class for Triton kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jitwarm.backends.triton.recipe import TritonRecipe
from jitwarm.contract.kernel import JitKernel, KeyT
from jitwarm.contract.launcher import BoundLaunch, KernelLaunch, Launcher, binding_of
from jitwarm.contract.roundtrip import check_round_trip, recording_copy
from jitwarm.declare.tensor import TensorSpec
from jitwarm.errors import BindingError, DeclarationError

TritonWarmupTensor = TensorSpec


class TritonJitKernel(JitKernel[KeyT], KernelLaunch):
    """A Triton kernel with its compile keys.

    `kernel` is the `@triton.jit` function (or an object that is launched in the same way).
    `__call__`, decorated with `kernel_launcher`, returns (grid, launch kwargs[, outputs]);
    `warmup_inputs(key)` returns arguments of `__call__` that give the key, which is checked.
    Warm-up asks the undecorated `__call__` for its specification and binds that as a launch would,
    so a launch of the same object from another thread is not disturbed.
    """

    kernel: Any

    def warmup_inputs(self, key: KeyT) -> Mapping[str, Any]:
        """Arguments of `__call__` that reproduce `key`, tensors as `TritonWarmupTensor`."""
        raise DeclarationError(
            f"{self.kernel_name}: the class has no warmup_inputs(key); return the arguments of "
            "__call__ for a key"
        )

    def recipe(self, key: KeyT) -> object:
        """What a compile of `key` needs: a `TritonRecipe`.

        A class with its own `compile`, and a kernel that is no plain JITFunction (an autotuner, a
        function without Triton), give an `OpaqueRecipe`: only `compile` knows how.
        """
        if type(self).compile is TritonJitKernel.compile:
            bound = self.bound_launch(key)
            if _is_jit_function(bound.kernel):
                return _recipe(bound)
        return super().recipe(key)

    def compile(self, key: KeyT) -> Any:
        """Compile `key` without launching it and store the result as its executor.

        A plain function without a `warmup` entry has nothing to compile: its key is ready at once.
        """
        bound = self.bound_launch(key)
        executor: Any = bound
        if _is_jit_function(bound.kernel):
            from jitwarm.backends.triton.compiler import compile_recipe

            executor = compile_recipe(_recipe(bound))
        elif callable(getattr(bound.kernel, "warmup", None)):
            executor = bound.kernel.warmup(grid=(1,), **bound.arguments, **bound.options)
        self._compiled_cache[key] = executor
        return executor

    def bound_launch(self, key: KeyT) -> BoundLaunch:
        """The launch that `warmup_inputs(key)` leads to, by name.

        Every tensor in it is a `TritonWarmupTensor`. An option `launch_pdl` takes the key's value
        if the key has one. `__call__` runs on a shallow copy of this object. Raises `BindingError`
        if the inputs do not fit `__call__` or the launch does not fit the kernel, and
        `DeclarationError` if `__call__` calls `self.dispatch` and does not get `key` from it.
        """
        launcher = getattr(type(self).__call__, "launcher", None)
        if not isinstance(launcher, Launcher):
            raise DeclarationError(
                f"{self.kernel_name}: __call__ is not decorated with @kernel_launcher"
            )
        inputs = self.warmup_inputs(key)
        try:
            values = launcher.collect(self, **inputs)
        except TypeError as error:
            raise BindingError(
                f"{self.kernel_name}: warmup_inputs({key!r}) does not fit __call__: {error}"
            ) from error
        copy, recorder = recording_copy(self)
        spec = launcher.function(copy, **inputs)
        binding = launcher.binding if self.bind_launch_inputs else binding_of(())
        bound = binding.bind(self, spec, values)
        if _is_jit_function(bound.kernel):
            binding.prepare(self, bound.kernel, spec[1])
        replaced: frozenset[str] = frozenset()
        if "launch_pdl" in bound.options and hasattr(key, "launch_pdl"):
            bound.options["launch_pdl"] = key.launch_pdl
            replaced = frozenset({"launch_pdl"})
        check_round_trip(self, key, recorder.returned, replaced=replaced)
        return BoundLaunch(
            bound.kernel,
            {name: _without_storage(v) for name, v in bound.arguments.items()},
            bound.options,
        )


def _recipe(bound: BoundLaunch) -> TritonRecipe:
    from jitwarm.backends.triton.naming import import_path

    return TritonRecipe(
        import_path(bound.kernel), tuple(bound.arguments.items()), tuple(bound.options.items())
    )


def _is_jit_function(kernel: Any) -> bool:
    """Whether this is Triton's own JITFunction, told without importing Triton."""
    return any(
        c.__name__ == "JITFunction" and c.__module__.startswith("triton.")
        for c in type(kernel).__mro__
    )


def _without_storage(value: Any) -> Any:
    """A tensor, real or fake, as a stand-in; everything else unchanged."""
    if (
        isinstance(value, TensorSpec)
        or not hasattr(value, "data_ptr")
        or not hasattr(value, "dtype")
    ):
        return value
    # A fake tensor has no address and warns when asked: its storage counts as aligned, as a fresh
    # allocation is.
    fake = type(value).__name__ == "FakeTensor"
    address = value.storage_offset() * value.element_size() if fake else value.data_ptr()
    aligned = value.numel() == 0 or address % 16 == 0
    compact = TensorSpec(value.dtype, aligned, tuple(value.shape))
    strides = tuple(value.stride())
    return (
        compact
        if compact.stride() == strides
        else TensorSpec(value.dtype, aligned, tuple(value.shape), strides)
    )
