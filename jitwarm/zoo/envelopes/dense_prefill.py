"""Dense MLA prefill through FA4MLAPrefill: new tokens among themselves, and pieces of contexts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jitwarm.config import EngineConfig
from jitwarm.proof.envelope import Envelope, Values
from jitwarm.zoo.kernels.fa4_mla_launches import PrefillLaunch, launch_of_each_cut
from jitwarm.zoo.kernels.fa4_mla_prefill import (
    CONTEXT_ROWS,
    attention_of,
    constants,
    fa4_mla_prefill,
    prefill_limits,
)

SITES = {
    (True, False): "FA4MLAPrefill of new tokens without contexts",
    (True, True): "FA4MLAPrefill of new tokens before contexts",
    (False, True): "FA4MLAPrefill of contexts",
}


def dense_prefill(
    config: EngineConfig,
    *,
    longest: int | None = None,
    contexts: int = CONTEXT_ROWS,
    num_splits: int = 0,
) -> Iterator[Envelope]:
    """The launches of a layer, one envelope a kind of launch that the limits admit.

    `longest`, `contexts`: as in the registration of the kernel; `num_splits` is 1 in
    batch-invariant mode.

    Requests x queries x keys are too many points to ask the library about, and their keys have no
    form. So the points are the smallest launch for each number of requests, queries and splits at
    which the library's decision changes (`fa4_mla_launches`): finer than what binaries show, and
    finer than what is declared, of which there is one launch for each way to cut.
    """
    attention = attention_of(config, may_split=num_splits == 0)
    launches = launch_of_each_cut(
        attention, prefill_limits(config, longest, contexts), each_number_of_splits=True
    )
    for mode, site in SITES.items():
        own = [one for one in launches if (one.causal, one.return_lse) == mode]
        if own:
            yield Envelope(
                fa4_mla_prefill, site, {"launch": Values(*own)}, _inputs(config, num_splits)
            )


def _inputs(config: EngineConfig, num_splits: int) -> Callable[..., Mapping[str, Any]]:
    fixed = constants(config)

    def launch(launch: PrefillLaunch) -> Mapping[str, Any]:
        return {
            **fixed,
            "max_q": launch.max_q,
            "max_k": launch.max_k,
            "batch": launch.batch,
            "causal": launch.causal,
            "return_lse": launch.return_lse,
            "num_splits": num_splits,
        }

    return launch
