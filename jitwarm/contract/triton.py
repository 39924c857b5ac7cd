"""The contract class for Triton kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jitwarm.contract.autotune import is_triton_kernel, launches_of, make_ready, triton_parts
from jitwarm.contract.kernel import JitKernel, KeyT, OpaqueRecipe
from jitwarm.contract.launcher import (
    BoundLaunch,
    InputBinding,
    KernelLaunch,
    Launcher,
    binding_of,
)
from jitwarm.contract.roundtrip import check_round_trip, recording_copy
from jitwarm.declare.enumeration import Declared
from jitwarm.declare.tensor import TensorSpec
from jitwarm.declare.torch_tensor import with_torch_dtype, without_storage
from jitwarm.errors import BindingError, DeclarationError

TritonWarmupTensor = TensorSpec


@dataclass(frozen=True, slots=True)
class EvaluatedCall:
    """A `__call__` that was evaluated and not launched: its specification, the values of its
    inputs, and the keys that it asked `dispatch` for, in order.
    """

    owner: TritonJitKernel[Any]
    binding: InputBinding
    spec: Any
    values: tuple[Any, ...]
    dispatched: list[Any]

    @property
    def launches(self) -> bool:
        """Whether there is a grid: without one nothing is launched."""
        return not (isinstance(self.spec, tuple) and self.spec and self.spec[0] is None)

    def bound(self) -> BoundLaunch:
        """The launch by name, each tensor as a stand-in.

        Raises `DeclarationError` for what is no specification and `BindingError` for one that does
        not fit the kernel.
        """
        bound = self.binding.bind(self.owner, self.spec, self.values)
        if is_triton_kernel(bound.kernel):
            self.binding.prepare(self.owner, bound.kernel, self.spec[1])
        arguments = {name: without_storage(value) for name, value in bound.arguments.items()}
        return replace(bound, arguments=arguments)


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

        A class with its own `compile`, an autotuned kernel (see `parts`) and a function without
        Triton give an `OpaqueRecipe`: only `compile` knows how.
        """
        parts = self._triton_parts(key)
        return parts[0].recipe if len(parts) == 1 else super().recipe(key)

    def parts(self, key: KeyT) -> list[Declared]:
        """The recipes of `key`, each with its text.

        For an autotuned kernel one for each configuration that pruning leaves, and one for the
        choice between them.
        """
        if type(self).recipe is TritonJitKernel.recipe:
            parts = self._triton_parts(key)
            if parts:
                return parts
        return super().parts(key)

    def _triton_parts(self, key: KeyT) -> list[Declared]:
        """Empty for a class with its own `compile` and for a kernel that is not Triton's."""
        if type(self).compile is not TritonJitKernel.compile:
            return []
        bound = self.bound_launch(key)
        if not is_triton_kernel(bound.kernel):
            return []
        launches = launches_of(self.kernel_name, bound)
        return triton_parts(self.key_text(key), bound, launches, OpaqueRecipe(self, key))

    def compile(self, key: KeyT) -> Any:
        """Compile `key` without launching it and store the result as its executor.

        An autotuned kernel gets all its configurations compiled and makes its choice: see
        `jitwarm.backends.triton.tuning`. A plain function without a `warmup` entry has nothing to
        compile: its key is ready at once.
        """
        bound = self.bound_launch(key)
        executor: Any = bound
        if is_triton_kernel(bound.kernel):
            executor = make_ready(self.kernel_name, bound)
        elif callable(getattr(bound.kernel, "warmup", None)):
            executor = bound.kernel.warmup(grid=(1,), **bound.arguments, **bound.options)
        self._compiled_cache[key] = executor
        return executor

    def bound_launch(self, key: KeyT) -> BoundLaunch:
        """The launch that `warmup_inputs(key)` leads to, by name.

        Every tensor in it is a `TritonWarmupTensor`; `__call__` sees torch's dtypes in them, also
        where they were declared by name. An option `launch_pdl` takes the key's value
        if the key has one. `__call__` runs on a shallow copy of this object. Raises `BindingError`
        if the inputs do not fit `__call__` or the launch does not fit the kernel, and
        `DeclarationError` if `__call__` calls `self.dispatch` and does not get `key` from it.
        """
        self._launcher()  # what the class lacks is said before its inputs are asked for
        call = self.evaluate_call(self.warmup_inputs(key), lambda: f"warmup_inputs({key!r})")
        bound = call.bound()
        replaced: frozenset[str] = frozenset()
        if "launch_pdl" in bound.options and hasattr(key, "launch_pdl"):
            bound.options["launch_pdl"] = key.launch_pdl
            replaced = frozenset({"launch_pdl"})
        check_round_trip(self, key, call.dispatched, replaced=replaced)
        return bound

    def evaluate_call(
        self, inputs: Mapping[str, Any], source: Callable[[], str] = lambda: "this call"
    ) -> EvaluatedCall:
        """What `__call__(**inputs)` would launch; nothing is launched.

        Tensors in `inputs` are `TritonWarmupTensor`s; `source` says in errors where the inputs come
        from. `__call__` runs on a shallow copy of this object. Raises `DeclarationError` for a
        class without `kernel_launcher`, `BindingError` for inputs that do not fit `__call__`, and
        what `__call__` raises.
        """
        launcher = self._launcher()
        try:
            values = launcher.collect(self, **inputs)
        except TypeError as error:
            raise BindingError(
                f"{self.kernel_name}: {source()} does not fit __call__: {error}"
            ) from error
        copy, recorder = recording_copy(self)
        inputs = {name: with_torch_dtype(value) for name, value in inputs.items()}
        spec = launcher.function(copy, **inputs)
        binding = launcher.binding if self.bind_launch_inputs else binding_of(())
        return EvaluatedCall(self, binding, spec, values, recorder.returned)

    def _launcher(self) -> Launcher:
        launcher = getattr(type(self).__call__, "launcher", None)
        if not isinstance(launcher, Launcher):
            raise DeclarationError(
                f"{self.kernel_name}: __call__ is not decorated with @kernel_launcher"
            )
        return launcher
