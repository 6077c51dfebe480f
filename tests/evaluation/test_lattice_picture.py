"""The lattice's picture: what is drawn, and that it is drawn."""

import itertools

import pytest
import torch

from asr_ascend.evaluation import lattice_picture
from asr_ascend.evaluation.lattice_picture import lattice_occupancy, plot_alignment, token_labels
from asr_ascend.system import figures


def test_occupancy_is_the_share_of_the_alignments_that_visit_a_cell():
    num_frames, tokens, blank = 4, [2, 0], 1
    logits = torch.randn(4, 3, 3, generator=torch.Generator().manual_seed(1))
    log_probs = logits.double().log_softmax(-1)
    visited = torch.zeros(4, 3, dtype=torch.float64)
    for emitting in itertools.combinations_with_replacement(range(num_frames), 2):
        score, u, cells = torch.zeros(()), 0, []
        for t in range(num_frames):
            cells.append((t, u))
            while u < 2 and emitting[u] == t:
                score = score + log_probs[t, u, tokens[u]]
                u += 1
                cells.append((t, u))
            score = score + log_probs[t, u, blank]
        for t, u in cells:
            visited[t, u] += score.exp()
    occupancy = lattice_occupancy(logits, torch.tensor(tokens), blank)
    torch.testing.assert_close(occupancy, visited / visited[-1, -1], rtol=1e-9, atol=1e-12)
    assert float(occupancy[0, 0]) == pytest.approx(1)


def test_the_line_goes_right_by_blanks_and_up_by_tokens():
    times, columns = lattice_picture._path([0.1, 0.2, 0.3], [1, 1, 2])
    assert times == [0.1, 0.2, 0.2, 0.2, 0.3, 0.3]
    assert columns == [0, 0, 1, 2, 2, 3]


def test_labels_become_numbers_where_a_glyph_is_missing(monkeypatch):
    assert token_labels(["a", "▁be", " ", "é"]) == ["a", "␣be", "␣", "é"]
    monkeypatch.setattr(figures, "_CHINESE", ())
    assert token_labels(["a", "油", "温"]) == ["1", "2", "3"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_picture_is_written(tmp_path, suffix):
    tokens = torch.tensor([2, 0, 3])
    logits = torch.randn(30, 4, 5, generator=torch.Generator().manual_seed(1))
    path = tmp_path / "new" / f"one.{suffix}"
    plot_alignment(path, logits, tokens, 1, ["油", "b", "c"], title="one", emitted=[3, 9, 20])
    data = path.read_bytes()
    start = {"png": b"\x89PNG", "svg": b"<?xml"}[suffix]
    assert data.startswith(start)
    assert len(data) > 5000


@pytest.mark.filterwarnings("error")
def test_a_lattice_without_an_alignment_is_drawn_without_a_line(tmp_path):
    logits = torch.zeros(5, 2, 3)
    logits[4, 1, 1] = -torch.inf  # the last blank
    plot_alignment(tmp_path / "none.png", logits, torch.tensor([2]), 1, ["a"])
    assert (tmp_path / "none.png").stat().st_size > 1000
