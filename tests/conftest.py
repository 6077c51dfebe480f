import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def uninitialized_memory_is_nan():
    """torch.empty returns NaN, so output that nobody wrote can't pass a comparison."""
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.empty(3).isnan().all()
