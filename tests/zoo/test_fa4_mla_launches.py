"""Which launches of dense prefill there are, and how they are cut up: the few that are looked at
against all of them, and the cut against the library.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch

from jitwarm.zoo.kernels.fa4_mla_launches import (
    PrefillLaunch,
    PrefillLimits,
    admits,
    launch_of_each_cut,
)
from jitwarm.zoo.kernels.fa4_mla_splits import Attention, cuts

MODES = ((True, False), (True, True), (False, True))
# Few SMs, so that few requests fill the device.
ENGINES = [
    (Attention(2, 128, 128, "sm100", 24, may_split=True), PrefillLimits(5, 420, 1400, 1024)),
    (Attention(4, 192, 128, "sm100", 24, may_split=True), PrefillLimits(3, 140, 8600, 8500)),
    (Attention(1, 256, 256, "sm100", 6, may_split=True), PrefillLimits(6, 400, 1000, 990)),
    (Attention(3, 64, 64, "sm100", 20, may_split=False), PrefillLimits(3, 300, 700, 1)),
    (Attention(3, 64, 64, "sm90", 0, may_split=True), PrefillLimits(3, 450, 700, 600)),
    (Attention(3, 64, 64, "sm90", 0, may_split=True), PrefillLimits(3, 450, 200, 0)),
    (Attention(1, 128, 128, "sm90", 0, may_split=True), PrefillLimits(300, 300, 9, 4)),
]


def cut_of(attention, launch):
    ((_, cut, _),) = cuts(attention, launch.batch, launch.max_q, np.array([launch.max_k], np.int64))
    return launch.causal, launch.return_lse, cut


def every_cut(attention, limits):
    """By each number of requests, queries and keys."""
    found = set()
    for batch, max_q in itertools.product(
        range(1, limits.requests + 1), range(1, limits.tokens + 1)
    ):
        for causal, lse in MODES:
            keys = [max_q] if causal else range(1, limits.contexts + 1)
            fit = [
                k for k in keys
                if admits(limits, PrefillLaunch(max_q, k, batch, causal, lse))
            ]  # fmt: skip
            if fit:
                seen = cuts(attention, batch, max_q, np.array(fit, np.int64))
                found |= {(causal, lse, cut) for _, cut, _ in seen}
    return found


@pytest.mark.parametrize(("attention", "limits"), ENGINES)
def test_the_launches_that_are_looked_at_stand_for_all(attention, limits):
    few = launch_of_each_cut(attention, limits)
    assert all(admits(limits, launch) for launch in few)
    assert len({cut_of(attention, launch) for launch in few}) == len(few)
    assert {cut_of(attention, launch) for launch in few} == every_cut(attention, limits)
    finer = launch_of_each_cut(attention, limits, each_number_of_splits=True)
    assert all(admits(limits, launch) for launch in finer)
    assert set(few) <= set(finer)


@pytest.mark.parametrize(
    ("launch", "fits"),
    [
        (PrefillLaunch(10, 10, 1, True, False), True),
        (PrefillLaunch(11, 11, 1, True, False), False),  # of 10 new tokens
        (PrefillLaunch(9, 9, 2, True, False), True),
        (PrefillLaunch(10, 10, 2, True, False), False),  # the other has one
        (PrefillLaunch(1, 1, 4, True, False), False),  # of 3 requests
        (PrefillLaunch(2, 3, 1, True, False), False),  # causal: as many keys
        (PrefillLaunch(2, 10, 1, False, True), True),
        (PrefillLaunch(3, 10, 1, False, True), False),  # of 12 tokens with its context
        (PrefillLaunch(3, 10, 2, False, True), True),  # the other's context
        (PrefillLaunch(1, 11, 2, False, True), False),  # of 10 rows
        (PrefillLaunch(1, 1, 1, False, False), False),  # could not be merged
        (PrefillLaunch(0, 0, 1, True, False), False),
    ],
)
def test_what_a_step_can_launch(launch, fits):
    assert admits(PrefillLimits(3, 10, 12, 10), launch) is fits


@pytest.mark.cutedsl
def test_a_cut_is_what_the_library_decides(stub, monkeypatch):
    """Its own decision: splits, stages and tiles."""
    interface = pytest.importorskip("flash_attn.cute.interface")
    rng = random.Random(5)
    device = torch.device("cuda", 0)
    monkeypatch.setattr(interface, "get_num_sms_for_selection", lambda index, arch: 148)
    dims = ((192, 128), (256, 256), (128, 128), (64, 64), (96, 96))
    for _ in range(2000):
        heads, (qk, v), may_split = rng.choice((1, 2, 4, 16)), rng.choice(dims), rng.random() < 0.8
        arch = rng.choice(("sm100", "sm90"))
        batch, max_q, max_k = (int(most ** rng.random()) for most in (300, 8192, 131072))
        theirs = interface._get_fwd_config(
            arch=int(arch[2:]), head_dim=qk, head_dim_v=v, causal=True, local=False,
            window_size_left=None, window_size_right=None, max_seqlen_q=max_q, max_seqlen_k=max_k,
            qhead_per_kvhead=1, pack_gqa=False, batch_size=batch, num_head_kv=heads, device=device,
            num_splits=0 if may_split and arch == "sm100" else 1,
        )  # fmt: skip
        attention = Attention(heads, qk, v, arch, 148, may_split)
        ((_, cut, splits),) = cuts(attention, batch, max_q, np.array([max_k], np.int64))
        assert (splits, cut.stages) == (theirs.num_splits, theirs.q_stage)
        assert not cut.split or cut.key_tile == theirs.n_block_size
        assert attention.query_tile == theirs.m_block_size
