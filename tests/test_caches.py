"""Every cache root below one folder, and its files counted."""

from __future__ import annotations

import pytest
import torch

from jitwarm import caches


def test_every_root_gets_an_empty_folder_of_its_own(tmp_path):
    variables = caches.isolated(tmp_path / "roots")
    assert list(variables) == list(caches.ROOTS)
    assert len(set(variables.values())) == len(caches.ROOTS)
    for folder in variables.values():
        assert folder.startswith(str(tmp_path))
        assert not any((tmp_path / "roots" / folder).iterdir())
    assert caches.isolated(tmp_path / "roots") == variables


def test_files_are_counted_in_the_roots_that_the_environment_names(tmp_path, monkeypatch):
    for name in caches.ROOTS:
        monkeypatch.delenv(name, raising=False)
    assert caches.count() == {}
    folder = tmp_path / "cache"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "one").touch()
    (folder / "two").touch()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    monkeypatch.setenv("CUDA_CACHE_PATH", str(tmp_path / "none"))
    monkeypatch.setenv("TRITON_HOME", "")
    assert caches.count() == {"TRITON_CACHE_DIR": 2, "CUDA_CACHE_PATH": 0}


@pytest.mark.triton
def test_triton_writes_where_it_is_told_to(stub, triton_cache):
    import plan_subjects

    assert caches.count()["TRITON_CACHE_DIR"] == 0
    plan_subjects.fill.warmup(plan_subjects.X, VALUE=1.0, grid=(1,))
    assert caches.count()["TRITON_CACHE_DIR"] > 0
    assert torch.zeros(1).sum() == 0
