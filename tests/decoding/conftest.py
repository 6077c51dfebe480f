import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Models this small only wait for a second thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
