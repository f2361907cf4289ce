"""What the tests of the Python package share."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import varve


@pytest.fixture
def path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a store is, or will be. Snapshots are in a folder of the test."""
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setenv("VARVE_SHARED_MEMORY", str(memory))
    return str(tmp_path / "store")


@pytest.fixture
def filled(path: str) -> varve.Store:
    """A store with the sets run@1 to run@3."""
    field = np.zeros((6, 7, 8))
    state: dict[str, Any] = {"time": 0.0, "name": ""}
    with varve.Session(store=path, job="run") as session:
        session.protect("field", field)
        session.protect("state", state)
        for step in (1, 2, 3):
            field[:] = np.arange(field.size).reshape(field.shape) + step
            state.update(time=step / 2, name=f"step {step}")
            session.checkpoint(step, wait=True)
    return varve.Store(path)
