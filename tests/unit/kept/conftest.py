"""What the tests of results that are kept share."""

import pytest

from flatout.kept import kept_function, kept_module


@pytest.fixture(autouse=True)
def however_long_looking_takes(monkeypatch):
    """Keep results whatever looking takes: on a busy machine that is another time each time."""
    monkeypatch.setattr(kept_function, "_WORTH", 1e9)
    monkeypatch.setattr(kept_module, "_WORTH", 1e9)
