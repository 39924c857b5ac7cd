"""Runs the PTX of a compiled kernel on numpy: one block, all threads, real control flow.

No GPU and no emulator can run CuTe DSL kernels on a CI machine, but the compiler leaves PTX. This
interprets the few dozen instructions that the top-k kernel uses, exactly, and is strict where a
GPU is silent:

* a shuffle or a warp whose threads are at different places is an error, and so is a barrier that
  some threads never reach;
* between two barriers, two threads must not touch one word of memory unless both only read or both
  do atomics: such a race is an error in whatever order the threads happened to run;
* reading shared memory that nobody wrote, and any address outside of the buffers, is an error.

Threads run in lockstep, or in warps that a generator picks at random (`order`).
Not covered: caches, memory ordering weaker than barriers give, SASS, more than one block at once.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

WARP = 32
_SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_COMPARE = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


class KernelError(AssertionError):
    """The kernel did what a GPU would not forgive, or what this does not know."""


class Memory:
    """A buffer of 4-byte words at an address, watched for races."""

    def __init__(self, name: str, base: int, words: np.ndarray, *, written: bool) -> None:
        self.name, self.base, self.words = name, base, words
        self.written = np.full(words.shape, written)
        self.start_epoch()

    def start_epoch(self) -> None:
        """Forget who touched what: a barrier lies between then and now."""
        self.writer = np.full(self.words.shape, -1)
        self.reader = np.full(self.words.shape, -1)  # -2: several threads
        self.atomic = np.zeros(self.words.shape, bool)

    def places(self, addresses: np.ndarray, size: int) -> np.ndarray:
        offsets = addresses.astype(np.int64) - self.base
        outside = (offsets < 0) | (offsets + size > self.words.nbytes)
        if ((offsets % size != 0) | outside).any():
            raise KernelError(f"{self.name}: misaligned or outside, offsets {np.unique(offsets)}")
        return offsets // 4

    def load(self, places: np.ndarray, threads: np.ndarray) -> np.ndarray:
        if not self.written[places].all():
            word = places[~self.written[places]][0]
            raise KernelError(f"{self.name}: reads word {word}, which nobody wrote")
        writer = self.writer[places]
        self._check((writer != -1) & (writer != threads), places, "is read by another thread")
        other = (self.reader[places] != -1) & (self.reader[places] != threads)
        self.reader[places] = threads
        self.reader[places[other]] = -2
        several = np.bincount(places, minlength=len(self.words))[places] > 1
        self.reader[places[several]] = -2
        return self.words[places]

    def store(self, places: np.ndarray, values: np.ndarray, threads: np.ndarray) -> None:
        self._exclusive(places, threads)
        several = np.bincount(places, minlength=len(self.words))[places] > 1
        self._check(several, places, "is written by two threads")
        self.writer[places], self.words[places], self.written[places] = threads, values, True

    def add(self, places: np.ndarray, values: np.ndarray, threads: np.ndarray) -> np.ndarray:
        writer, reader = self.writer[places], self.reader[places]
        touched = ((writer != -1) & (writer != threads)) | ((reader != -1) & (reader != threads))
        self._check(touched, places, "is also used without an atomic")
        self.atomic[places] = True
        before = np.empty_like(values)
        for i, place in enumerate(places):  # one after the other: each sees the one before
            before[i] = self.words[place]
            self.words[place] += values[i]
        return before

    def _exclusive(self, places: np.ndarray, threads: np.ndarray) -> None:
        writer, reader = self.writer[places], self.reader[places]
        self._check((writer != -1) & (writer != threads), places, "is written by two threads")
        self._check((reader != -1) & (reader != threads), places, "was read by another thread")
        self._check(self.atomic[places], places, "is also used by an atomic")

    def _check(self, bad: np.ndarray, places: np.ndarray, what: str) -> None:
        if bad.any():
            word = places[bad][0]
            raise KernelError(f"{self.name}: race: word {word} {what}, without a barrier between")


@dataclass
class Program:
    """The parsed kernel: steps, labels and shared variables (name -> offset)."""

    parameters: list[int]
    shared: dict[str, int]
    shared_bytes: int
    lines: list[str]
    labels: dict[str, int]
    steps: list[tuple[str, str | None, bool, list[str]]] = field(default_factory=list)


@functools.lru_cache(maxsize=64)
def parse(ptx: str) -> Program:
    """The only kernel of a PTX text."""
    _, _, body = ptx.partition(".entry ")
    assert ".entry" not in body, "one kernel is expected"
    signature, _, body = body.partition("{")
    program = Program(
        [int(size) for size in re.findall(r"\.param [^\[,)]*\[(\d+)\]", signature)], {}, 0, [], {}
    )
    for raw in re.sub(r"//[^\n]*", "", body).splitlines():
        line = raw.strip().rstrip(";").strip()
        if line.startswith(".shared"):
            found = re.fullmatch(r"\.shared \.align (\d+) \.[bu](\d+) (\S+?)(?:\[(\d+)\])?", line)
            assert found, line
            align, bits, name, count = found.groups()
            start = -(-program.shared_bytes // int(align)) * int(align)
            program.shared[name] = start
            program.shared_bytes = start + _SIZES[bits] * int(count or 1)
        elif line.endswith(":"):
            program.labels[line[:-1]] = len(program.steps)
        elif line and line[0] not in ".}":
            found = re.fullmatch(r"(?:@(!?)(%p\d+)\s+)?([a-z][\w.:]*)\s*(.*)", line)
            assert found, line
            negated, predicate, name, rest = found.groups()
            operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest)
            program.steps.append((name, predicate, negated == "!", operands))
            program.lines.append(line)
    return program


class Block:
    """One block of a launch; `run` runs it to the end."""

    def __init__(
        self, program: Program, *, threads: int, block: int, parameters: list[bytes],
        buffers: list[Memory],
    ) -> None:  # fmt: skip
        self.program, self.threads, self.block, self.buffers = program, threads, block, buffers
        assert [len(p) for p in parameters] == program.parameters
        self.parameters = parameters
        words = np.full(-(-program.shared_bytes // 4), 0xDEADBEEF, np.uint32)
        self.shared = Memory("shared memory", 0, words, written=False)
        self.registers: dict[str, np.ndarray] = {}
        self.pc = np.zeros(threads, np.int64)
        self.waiting = np.zeros(threads, bool)
        self.done = np.zeros(threads, bool)
        self.barriers = 0

    def run(self, order: np.random.Generator | None = None) -> None:
        """Run all threads to the end; `order` picks which warps go first."""
        warps = np.arange(self.threads) // WARP
        while not self.done.all():
            ready = ~(self.waiting | self.done)
            if not ready.any():
                if self.done.any():
                    raise KernelError("some threads ended while others wait at a barrier")
                if len(set(self.pc)) > 1:
                    raise KernelError("threads wait at different barriers")
                self.waiting[:] = False
                self.barriers += 1
                for memory in (self.shared, *self.buffers):
                    memory.start_epoch()
                continue
            if order is not None:
                first = order.choice(np.unique(warps[ready]))
                chosen = order.random(self.threads // WARP) < 0.5
                chosen[first] = True
                ready &= chosen[warps]
                ready &= self.pc == self.pc[ready & (warps == first)].min()
            else:
                ready &= self.pc == self.pc[ready].min()
            self._step(np.flatnonzero(ready))

    def _step(self, active: np.ndarray) -> None:
        at = int(self.pc[active[0]])
        name, predicate, negated, operands = self.program.steps[at]
        self.pc[active] = at + 1
        if predicate:
            active = active[self.registers[predicate][active] != negated]
        try:
            if len(active):
                self._execute(name, operands, active)
        except KernelError as error:
            raise KernelError(f"{error} (line {at}: {self.program.lines[at]})") from None

    # Operands.

    def _get(self, text: str, size: int, active: np.ndarray) -> np.ndarray:
        if text in ("%tid.x", "%ctaid.x", "%laneid"):
            value = {"%tid.x": active, "%ctaid.x": np.full(len(active), self.block)}.get(
                text, active % WARP
            )
            return value.astype(_UNSIGNED[size])
        if text.startswith("%"):
            value = self.registers[text][active]
            if value.dtype == bool:
                return value
            assert value.dtype.itemsize == size, f"{text} has another width"
            return value
        number = self.program.shared[text] if text in self.program.shared else int(text, 0)
        return np.full(len(active), number & (256**size - 1), _UNSIGNED[size])

    def _set(self, text: str, value: np.ndarray, active: np.ndarray) -> None:
        if text == "_":
            return
        if text not in self.registers:
            self.registers[text] = np.zeros(self.threads, value.dtype)
        self.registers[text][active] = value.astype(self.registers[text].dtype)

    def _address(self, text: str, size: int, active: np.ndarray) -> np.ndarray:
        base, _, offset = text.strip("[]").partition("+")
        address = self._get(base, size, active)
        return address + np.array(int(offset or 0)).astype(address.dtype)  # wraps, as on a GPU

    def _memory(self, addresses: np.ndarray) -> Memory:
        for memory in self.buffers:
            if memory.base <= addresses[0] < memory.base + memory.words.nbytes:
                return memory
        raise KernelError(f"no buffer at address {addresses[0]:#x}")

    # Instructions.

    def _execute(self, name: str, operands: list[str], active: np.ndarray) -> None:
        kind, *modifiers = name.split(".")
        if name == "ret":
            self.done[active] = True
            return
        if name == "bar.sync":
            self.waiting[active] = True
            return
        if kind == "bra":
            self.pc[active] = self.program.labels[operands[0]]
            return
        size = _SIZES.get(modifiers[-1][1:], 0)  # predicates have none
        if kind in ("ld", "st", "atom"):
            self._access(kind, modifiers, size, operands, active)
            return
        if kind == "shfl":
            self._shuffle(modifiers[1], operands, active)
            return
        if kind == "mov" and "{" in operands[0] + operands[1]:
            self._split(operands, active)
            return
        signed = modifiers[-1].startswith("s")
        view = (_SIGNED if signed else _UNSIGNED).get(size, np.bool_)

        def get(index: int, width: int = size) -> np.ndarray:
            return self._get(operands[index], width, active)

        if kind == "mov":
            value = get(1) if size else self._predicate(operands[1], active)
        elif kind == "cvt":
            value = self._convert(modifiers, operands[1], active)
        elif kind == "setp":
            value = _COMPARE[modifiers[0]](get(1).view(view), get(2).view(view))
        elif kind == "selp":
            value = np.where(self.registers[operands[3]][active], get(1), get(2))
        elif kind in ("and", "or", "xor", "not") and not size:
            value = _LOGIC[kind](*(self._predicate(o, active) for o in operands[1:]))
        elif kind in ("and", "or", "xor", "not"):
            value = _LOGIC[kind](*(get(i) for i in range(1, len(operands))))
        elif kind == "shl":
            value = _shifted(np.left_shift, get(1), get(2, 4))
        elif kind == "shr":
            value = _shifted(np.right_shift, get(1).view(view), get(2, 4))
        elif kind in ("mul", "mad") and modifiers[0] == "wide":
            wide = (_SIGNED if signed else _UNSIGNED)[2 * size]
            value = get(1).view(view).astype(wide) * get(2).view(view).astype(wide)
        elif kind in ("add", "sub", "mul", "mad", "min", "max"):
            value = _ARITHMETIC[kind](*(get(i).view(view) for i in range(1, len(operands))))
        else:
            raise KernelError(f"unknown instruction {name}")
        self._set(operands[0], value if value.dtype == bool else _plain(value), active)

    def _predicate(self, text: str, active: np.ndarray) -> np.ndarray:
        if text.startswith("%"):
            return self.registers[text][active]
        return np.full(len(active), int(text, 0) != 0)

    def _convert(self, modifiers: list[str], source: str, active: np.ndarray) -> np.ndarray:
        if modifiers == ["rzi", "s32", "f32"]:
            number = self._get(source, 4, active).view(np.float32).astype(np.float64)
            limits = np.iinfo(np.int32)
            return np.nan_to_num(np.clip(np.trunc(number), limits.min, limits.max)).astype(np.int32)
        target, origin = modifiers
        types = {
            text: (_SIGNED if text[0] == "s" else _UNSIGNED)[_SIZES[text[1:]]]
            for text in (target, origin)
        }
        value = self._get(source, types[origin]().itemsize, active).view(types[origin])
        return value.astype(types[target])

    def _split(self, operands: list[str], active: np.ndarray) -> None:
        if operands[1].startswith("{"):
            low, high = (part.strip() for part in operands[1].strip("{}").split(","))
            value = self._get(high, 4, active).astype(np.uint64) << np.uint64(32)
            self._set(operands[0], value | self._get(low, 4, active), active)
            return
        value = self._get(operands[1], 8, active)
        low, high = (part.strip() for part in operands[0].strip("{}").split(","))
        self._set(low, value.astype(np.uint32), active)
        self._set(high, (value >> np.uint64(32)).astype(np.uint32), active)

    def _access(
        self, kind: str, modifiers: list[str], size: int, operands: list[str], active: np.ndarray
    ) -> None:
        if kind == "ld" and modifiers[0] == "param":
            index, offset = re.fullmatch(r"\[.*_param_(\d+)(?:\+(\d+))?\]", operands[1]).groups()
            start = int(offset or 0)
            raw = self.parameters[int(index)][start : start + size]
            value = np.full(len(active), int.from_bytes(raw, "little"), _UNSIGNED[size])
            self._set(operands[0], value, active)
            return
        is_shared = "shared" in modifiers
        vector = next((int(m[1]) for m in modifiers if re.fullmatch(r"v\d", m)), 1)
        address = self._address(operands[kind != "st"], 4 if is_shared else 8, active)
        memory = self.shared if is_shared else self._memory(address)
        first = memory.places(address, size * vector)
        if kind == "atom":
            assert modifiers[-2:] == ["add", "u32"], modifiers
            before = memory.add(first, self._get(operands[2], 4, active), active)
            self._set(operands[0], before, active)
            return
        values = operands[kind == "st"].strip("{}").split(",")
        assert len(values) == vector
        per_value = size // 4
        for i, text in enumerate(part.strip() for part in values):
            if kind == "ld":
                parts = [memory.load(first + i * per_value + j, active) for j in range(per_value)]
                value = parts[0].astype(np.uint64)
                if per_value == 2:
                    value |= parts[1].astype(np.uint64) << np.uint64(32)
                # A 64-bit register may take a 32-bit word: it is extended with zeros.
                self._set(text, value.astype(np.uint64 if text.startswith("%rd") else np.uint32),
                          active)  # fmt: skip
            else:
                value = self._get(text, size, active)
                for j in range(per_value):
                    word = (value.astype(np.uint64) >> np.uint64(32 * j)).astype(np.uint32)
                    memory.store(first + i * per_value + j, word, active)

    def _shuffle(self, mode: str, operands: list[str], active: np.ndarray) -> None:
        target, source, by, clamp, mask = operands
        assert int(mask) == -1, mask
        if len(active) % WARP or (active.reshape(-1, WARP) % WARP != np.arange(WARP)).any():
            raise KernelError("a shuffle is reached by a part of a warp")
        lanes = active % WARP
        amount = int(by)
        if mode == "up":
            assert int(clamp) == 0
            lane = np.where(lanes >= amount, lanes - amount, lanes)
        else:
            assert (mode, int(clamp)) == ("idx", 31)
            lane = np.full(len(active), amount)
        value = self.registers[source]
        self._set(target, value[active - lanes + lane], active)


_LOGIC = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
}
_ARITHMETIC = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "mad": lambda a, b, c: a * b + c,
    "min": np.minimum,
    "max": np.maximum,
}


def _shifted(how: Callable[..., np.ndarray], value: np.ndarray, by: np.ndarray) -> np.ndarray:
    bits = 8 * value.dtype.itemsize
    if (by >= bits).any():
        raise KernelError(f"shifts {bits} bits by {by.max()}")
    return how(value, by.astype(value.dtype))


def _plain(value: np.ndarray) -> np.ndarray:
    return value.view(_UNSIGNED[value.dtype.itemsize])
