"""Makes the helper modules beside the tests importable by their names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))


@pytest.fixture
def here():
    return HERE
