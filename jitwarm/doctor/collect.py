"""Ask a machine what it has: `collect`.

Libraries are imported in processes of their own (`probe.py`), so no CUDA context is left
here. What follows from the answers is in `diagnosis.py`.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import entry_points
from pathlib import Path

import msgspec

import jitwarm
from jitwarm import caches, env
from jitwarm.doctor.cache_places import cache_folders, displayable
from jitwarm.doctor.diagnosis import (
    SCHEMA,
    Diagnosis,
    Gpu,
    Hooks,
    Installation,
    Stub,
    Torch,
    Variable,
    notes,
    problems,
)
from jitwarm.doctor.probe import BACKENDS, ProbeReply
from jitwarm.model import GROUP
from jitwarm.observe.blind_spots import blind_spots
from jitwarm.source import source_of
from jitwarm.versions import PACKAGES, SETTINGS, installed

# An import that takes longer hangs: flash-attention's took 21 s on a busy machine with two cores.
PROBE_S = 180
SIDE_BY_SIDE = 2
MORE_PACKAGES = ("tabulate", "asv", "asv_runner", "altair")

# What is watched of a library's work, and what of it is not.
SEEN = {
    "triton": "compiles, disk hits, loads, tunings and launches of @triton.jit kernels",
    "cutedsl": "compiles, disk hits and repeated traces; launches through jitwarm's classes",
    "fa4": "compiles, disk hits and launches of the forward path",
}
UNSEEN = {
    "triton": "direct calls of triton.compile",
    "cutedsl": "launches of kernels that no class of jitwarm launches",
    "fa4": "the backward path, except as compiles of CuTe DSL",
}
_PREFIXES = ("JITWARM_", "TRITON_", "CUTE_DSL_", "FLASH_ATTENTION_", "QUACK_", "CUDA_VISIBLE_")


def collect(probe: Callable[[str], ProbeReply] | None = None) -> Diagnosis:
    """Ask everything; takes some seconds, writes nothing but below a scratch folder.

    `probe` answers for a library instead of a process of its own.
    """
    environment = env.snapshot()
    packages = {name: installed(name) for name in (*PACKAGES, *MORE_PACKAGES)}
    replies = _ask(packages, probe or run_probe)
    gpus, gpu_problem = _gpus()
    found = Diagnosis(
        schema=SCHEMA,
        jitwarm=_installation(),
        python=platform.python_version(),
        executable=displayable(sys.executable),
        platform=platform.platform(),
        cores=os.cpu_count() or 1,
        c_compiler=_c_compiler(environment),
        gpus=gpus,
        gpu_problem=gpu_problem,
        torch=_torch(replies["torch"]),
        packages=packages,
        models=tuple(sorted(entry.name for entry in entry_points(group=GROUP))),
        hooks=tuple(_hooks(backend, packages, replies) for backend in BACKENDS),
        stub=_stub(replies["stub"]),
        caches=cache_folders(environment),
        variables=_variables(environment),
        unseen=blind_spots(parts=True),
    )
    return msgspec.structs.replace(
        found, problems=tuple(problems(found)), notes=tuple(notes(found))
    )


def run_probe(what: str) -> ProbeReply:
    """The reply of a probe in a process of its own, with caches of its own."""
    with tempfile.TemporaryDirectory(prefix="jitwarm-", ignore_cleanup_errors=True) as scratch:
        reply = Path(scratch) / "reply.json"
        environment = env.snapshot() | caches.isolated(Path(scratch) / "caches")
        command = (sys.executable, "-m", "jitwarm.doctor.probe", what, str(reply))
        try:
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PROBE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return ProbeReply("broken", f"no answer in {PROBE_S} s")
        except OSError as error:
            return ProbeReply("broken", f"its process cannot be started: {error}")
        try:
            return msgspec.json.decode(reply.read_bytes(), type=ProbeReply)
        except (OSError, msgspec.DecodeError):
            words = done.stderr.decode(errors="replace").strip().splitlines()
            last = f": {words[-1].strip()}" if words else ""
            return ProbeReply("broken", f"its process ended with status {done.returncode}{last}")


def _ask(packages: Mapping[str, str], probe: Callable[[str], ProbeReply]) -> dict[str, ProbeReply]:
    """The replies of all probes whose library is installed."""
    wanted = ["torch", "stub", *(name for name, library in BACKENDS.items() if packages[library])]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        return dict(zip(wanted, pool.map(probe, wanted), strict=True))


def _installation() -> Installation:
    folder = Path(jitwarm.__file__).resolve().parent
    path = displayable(str(folder))
    if not (folder.parent / ".git").exists():  # a wheel in a `.venv` of a checkout is not of it
        return Installation(jitwarm.__version__, path)
    source = source_of(folder)
    return Installation(jitwarm.__version__, path, source.commit, source.date, source.dirty)


def _gpus() -> tuple[tuple[Gpu, ...], str]:
    """The GPUs, and why the driver's tool did not answer: empty if it did, or is not there."""
    fields = "name,compute_cap,driver_version,memory.total"
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=False,
        )
    except FileNotFoundError:
        return (), ""
    except (OSError, subprocess.SubprocessError) as error:
        return (), f"nvidia-smi does not answer: {error}"
    lines = done.stdout.strip().splitlines()
    if done.returncode:
        said = (done.stderr.strip().splitlines() or lines or ["no word"])[0]
        return (), "" if "No devices" in said else f"nvidia-smi fails: {said}"
    gpus, problem = [], ""
    for line in lines:
        parts = [part.strip() for part in line.rsplit(",", 3)]  # a name may hold a comma
        if len(parts) == 4 and re.fullmatch(r"[0-9]+\.[0-9]+", parts[1]):
            name, capability, driver, memory = parts
            gpus.append(Gpu(name, "sm" + capability.replace(".", ""), driver, memory))
        else:  # no GPU would be a guess
            problem = problem or f"nvidia-smi says {line.strip()[:80]!r}, which is no GPU"
    return tuple(gpus), problem


def _c_compiler(environment: Mapping[str, str]) -> str:
    """The compiler that Triton takes for its launchers: CC, else gcc, else clang.

    If CC is set, be it to nothing, Triton tries no other.
    """
    names = (environment["CC"],) if "CC" in environment else ("gcc", "clang")
    found = next(filter(None, map(shutil.which, names)), "")
    return displayable(found)


def _torch(reply: ProbeReply) -> Torch:
    return Torch(str(reply.facts.get("cuda", "")), bool(reply.facts.get("usable")), reply.problem)


def _hooks(backend: str, packages: Mapping[str, str], replies: Mapping[str, ProbeReply]) -> Hooks:
    library = BACKENDS[backend]
    reply = replies.get(backend, ProbeReply("not installed"))
    return Hooks(
        backend,
        library,
        packages[library],
        reply.state,
        reply.problem,
        SEEN[backend],
        UNSEEN[backend],
    )


def _stub(reply: ProbeReply) -> Stub:
    facts = reply.facts
    problems = [str(one) for one in facts.get("problems", ())]
    return Stub(
        tuple(facts.get("arches", ())),
        tuple(facts.get("compiled", ())),
        (*problems, *([reply.problem] if reply.problem else [])),
    )


def _variables(environment: Mapping[str, str]) -> tuple[Variable, ...]:
    """What is set and matters; cache roots are told with their folders."""
    found = []
    for name, value in sorted(environment.items()):
        if name in caches.ROOTS or not (name.startswith(_PREFIXES) or name in SETTINGS):
            continue
        effect = "jitwarm" if name in env.NAMES else "compiles" if name in SETTINGS else ""
        found.append(Variable(displayable(name), displayable(value), effect))
    return tuple(found)
