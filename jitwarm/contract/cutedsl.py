"""The contract class for CuTe DSL kernels.

Nothing here imports the library (`cutlass`) before a kernel compiles: declaring, registering and
planning work without it.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Any, ClassVar

from jitwarm import keys
from jitwarm.backends import launches, sinks
from jitwarm.backends.cutedsl import compiling
from jitwarm.backends.cutedsl.recipe import CuTeDSLRecipe, key_text, object_path
from jitwarm.contract.kernel import JitKernel, KeyT
from jitwarm.contract.keytype import key_fields
from jitwarm.contract.launcher import kernel_launcher
from jitwarm.contract.readykeys import ReadyKeys
from jitwarm.errors import DeclarationError, NothingStoredError

# A launcher that hands `launch` the specification; the class binds no inputs by name.
cutedsl_kernel_launcher = kernel_launcher
compile_cutedsl = compiling.compile_entry


def cutedsl_fake_stream(use_tvm_ffi_env_stream: bool = True) -> Any:
    """The stream argument of a compile; see `jitwarm.backends.cutedsl.compiling.fake_stream`."""
    return compiling.fake_stream(use_tvm_ffi_env_stream=use_tvm_ffi_env_stream)


class CuTeDSLJitKernel(JitKernel[KeyT]):
    """A CuTe DSL kernel with its compile keys.

    A subclass has `kernel(key)`, which builds what is compiled, `warmup_inputs(key)`, the fake
    arguments of that, and `__call__`, decorated with `kernel_launcher`, which returns (key, args),
    (key, args, output) or (key, args, output, finaliser). `compile_options` and
    `use_tvm_ffi_env_stream` say how it is compiled.

    Start-up and serving share one executor a key. A class may also have `scratch_launch(key)`,
    which returns real arguments on the current device as a tuple: warm-up to depth `loaded`
    launches the executor once with them, because nothing else makes a tvm-ffi function load its
    module before its first launch.
    """

    bind_launch_inputs: ClassVar[bool] = False
    compile_options: ClassVar[str] = compiling.OPTIONS
    use_tvm_ffi_env_stream: ClassVar[bool] = True
    object_path: str
    _texts: dict[Any, str]
    _loaded: dict[Any, Any]
    _ready: ReadyKeys

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Name the object for key texts."""
        self = super().__new__(cls, *args, **kwargs)
        self.object_path = object_path(self)
        self._texts, self._loaded = {}, {}
        self._ready = ReadyKeys(getattr(cls, "CompileKey", None))
        return self

    # What a kernel author writes.

    @abstractmethod
    def kernel(self, key: KeyT) -> Any:
        """What is compiled for `key`: a `@cute.jit` function, or an object with one as `__call__`.

        Its last argument is the stream.
        """

    @abstractmethod
    def warmup_inputs(self, key: KeyT) -> tuple[Any, ...]:
        """The arguments of `kernel(key)` without the stream: fake tensors and constants."""

    # What it gets.

    def compile(self, key: KeyT) -> Any:
        """Compile `key` without launching it, store the executor and return it.

        A key that is there already is not compiled again.
        """
        if not compiling.is_inside_ready(self, key):
            return compiling.ready(self, key)
        executor = compile_cutedsl(
            self.kernel(key),
            *self.warmup_inputs(key),
            options=self.compile_options,
            use_tvm_ffi_env_stream=self.use_tvm_ffi_env_stream,
        )
        self._compiled_cache[key] = executor
        return executor

    def launch(self, spec: Any, inputs: Any = None) -> Any:
        """Launch a specification; returns what the finaliser returns if there is one, else the
        output if one is given, else what the executor returns.

        An executor that is missing is compiled now. `inputs` are not used.
        """
        size = len(spec) if isinstance(spec, tuple) else 0
        if size == 2:
            key, args = spec
        elif 3 <= size <= 4:
            key, args, output = spec[:3]
        else:
            raise DeclarationError(
                f"{self.kernel_name}: __call__ returned {spec!r}; return (key, args), (key, args, "
                "output) or (key, args, output, finaliser)"
            )
        known = self._ready.find(key)
        if known is not None and known.executor is self._compiled_cache.at(known.token):
            if launches.counting():
                launches.count(known.text)
            result = known.executor(*args)
        else:
            result = self._launch_unknown(key, args)
        if size == 4 and spec[3] is not None:
            return spec[3]()
        return output if size > 2 else result

    def _get_or_compile(self, key: KeyT, *, runtime_context: object = None) -> Any:
        """The executor of `key`, compiled now if it is missing.

        Raises `NothingStoredError` (a RuntimeError) if `compile` stored nothing under this key, and
        what a monitor raises to refuse it.
        """
        executor = compiling.ready(self, key)
        if executor is None:
            raise NothingStoredError(
                f"{type(self).__qualname__}: compile({key!r}) stored nothing under this key "
                f"(runtime context: {runtime_context!r}); "
                "store the executor in self._compiled_cache[key]"
            )
        return executor

    def recipe(self, key: KeyT) -> object:
        """What a compile of `key` needs: a `CuTeDSLRecipe`."""
        return CuTeDSLRecipe(self, key)

    def backend_key(self, key: KeyT) -> str:
        """The canonical backend key of `key`, as in `package.Kernel[topk=8]{sm_90a; ...}`."""
        token = keys.exact(key)
        text = self._texts.get(token)
        if text is None:
            own = type(self).compile is not CuTeDSLJitKernel.compile
            options = "" if own else self.compile_options
            text = key_text(self.object_path, key_fields(key), key, options)
            self._texts[token] = text
        return text

    def load(self, key: KeyT) -> str:
        """Make the executor of `key` load its module; see `scratch_launch` in the class.

        Returns a doubt in words where that cannot be done.
        """
        from jitwarm.backends.cutedsl.loading import load_executor

        return load_executor(self, key)

    def _launch_unknown(self, key: KeyT, args: tuple[Any, ...]) -> Any:
        """A launch that is not known to find everything ready: it may compile, and load."""
        text = self.backend_key(key)
        launches.count(text)
        executor = self._get_or_compile(key, runtime_context=args)
        token, start = keys.exact(key), time.perf_counter()
        result = executor(*args)
        if isinstance(executor, compiling.NullExecutor):
            return result
        if self._loaded.get(token) is not executor:
            self._loaded[token] = executor
            if not isinstance(executor, compiling.NothingLaunched):
                ms = (time.perf_counter() - start) * 1e3
                sinks.loaded(self.object_path.partition("#")[0], text, ms)
        self._ready.keep(key, token, text, executor)
        return result
