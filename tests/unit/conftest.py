"""What several groups of unit tests share."""

import pytest
import torch


@pytest.fixture
def two_threads():
    """Let torch compute on two threads; all other tests have one."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
