"""Every error of joiner_rnnt_loss, its message in full."""

import pytest
import torch

from asr_ascend.losses import joiner_rnnt_loss

B, T, U, H, V = 2, 3, 2, 4, 5


def arguments(**changes):
    given = {
        "encoder_out": torch.zeros(B, T, H),
        "predictor_out": torch.zeros(B, U + 1, H),
        "weight": torch.zeros(V, H),
        "bias": torch.zeros(V),
        "targets": torch.tensor([[1, 2], [3, 0]]),
        "logit_lengths": torch.tensor([3, 2]),
        "target_lengths": torch.tensor([2, 1]),
    }
    return given | changes


CASES = [
    (TypeError, {"encoder_out": [0.0]}, "`encoder_out` must be a Tensor, but is a list."),
    (TypeError, {"weight": None}, "`weight` must be a Tensor, but is a NoneType."),
    (
        TypeError,
        {"bias": torch.zeros(V, dtype=torch.int64)},
        "`bias` must be float32, float64, float16 or bfloat16, but is int64.",
    ),
    (
        TypeError,
        {"weight": torch.zeros(V, H, dtype=torch.bfloat16)},
        "`weight` must be float32 as `encoder_out` outside of autocast, but is bfloat16.",
    ),
    (
        ValueError,
        {"predictor_out": torch.zeros(B, U + 1, H, device="meta")},
        "`predictor_out` must be on cpu as `encoder_out`, but is on meta.",
    ),
    (
        ValueError,
        {"encoder_out": torch.zeros(T, H)},
        "`encoder_out` must be (B, T, H), H at least 1, but has shape (3, 4).",
    ),
    (
        ValueError,
        {
            "encoder_out": torch.zeros(B, T, 0),
            "predictor_out": torch.zeros(B, U + 1, 0),
            "weight": torch.zeros(V, 0),
        },
        "`encoder_out` must be (B, T, H), H at least 1, but has shape (2, 3, 0).",
    ),
    (
        ValueError,
        {"encoder_out": torch.zeros(B, T, H, device="meta")},
        "`encoder_out` must have values, but is on meta.",
    ),
    (
        ValueError,
        {"weight": torch.zeros(V, H).to_sparse()},
        "`weight` must be a dense tensor, but is sparse_coo.",
    ),
    (
        ValueError,
        {"predictor_out": torch.zeros(B, U + 1, H + 1)},
        "`predictor_out` must be (2, U + 1, 4), but has shape (2, 3, 5).",
    ),
    (
        ValueError,
        {"predictor_out": torch.zeros(B, 0, H)},
        "`predictor_out` must be (2, U + 1, 4), but has shape (2, 0, 4).",
    ),
    (
        ValueError,
        {"weight": torch.zeros(H, V)},
        "`weight` must be (V, 4), but has shape (4, 5).",
    ),
    (ValueError, {"bias": torch.zeros(H)}, "`bias` must have shape (5,), but has shape (4,)."),
    (
        ValueError,
        {"targets": torch.ones(3, U, dtype=torch.int64)},
        "`targets` must be (2, U), but has shape (3, 2).",
    ),
    (
        TypeError,
        {"targets": torch.zeros(B, U)},
        "`targets` must be int32 or int64, but is float32.",
    ),
    (
        ValueError,
        {"logit_lengths": torch.tensor([3])},
        "`logit_lengths` must have shape (2,), but has shape (1,).",
    ),
    (
        ValueError,
        {"logit_lengths": torch.tensor([3, 4])},
        "`logit_lengths` must be in [1, 3], but is 4 for sample 1.",
    ),
    (
        ValueError,
        {"target_lengths": torch.tensor([2, 3])},
        "`target_lengths` must be in [0, 2], but is 3 for sample 1.",
    ),
    (
        ValueError,
        {"targets": torch.tensor([[1, 2], [5, 0]])},
        "`targets` must be in [0, 4], but is 5 at position 0 of sample 1.",
    ),
    (
        ValueError,
        {"targets": torch.tensor([[1, 2], [4, 0]])},
        "`targets` must not contain `blank`, but is 4 at position 0 of sample 1.",
    ),
    (ValueError, {"blank": 5}, "`blank` must be in [-5, 4], but is 5."),
    (TypeError, {"clamp": "1"}, '`clamp` must be a float, but is "1".'),
    (
        ValueError,
        {"fastemit_lambda": -1.0},
        "`fastemit_lambda` must be finite and at least 0, but is -1.0.",
    ),
    (
        ValueError,
        {"emission_windows": torch.zeros(B, U, dtype=torch.int64)},
        "`emission_windows` must have shape (2, 2, 2), a first and a last frame for each of "
        "`targets`, but has shape (2, 2).",
    ),
    (
        ValueError,
        {"reduction": "max"},
        '`reduction` must be "none", "mean" or "sum", but is "max".',
    ),
    (ValueError, {"activation": "gelu"}, '`activation` must be "tanh" or "relu", but is "gelu".'),
    (
        ValueError,
        {"max_dropped_mass": -0.1},
        "`max_dropped_mass` must be a finite number of at least 0, but is -0.1.",
    ),
    (
        ValueError,
        {"max_dropped_mass": float("nan")},
        "`max_dropped_mass` must be a finite number of at least 0, but is nan.",
    ),
    (
        ValueError,
        {"max_bytes": 0},
        "`max_bytes` must be None or an int of at least 1, but is 0.",
    ),
    (
        ValueError,
        {"max_bytes": 1e9},
        "`max_bytes` must be None or an int of at least 1, but is 1000000000.0.",
    ),
    (
        TypeError,
        {"logits_dtype": torch.int8},
        "`logits_dtype` must be None, torch.float32, torch.float64, torch.float16 or "
        "torch.bfloat16, but is torch.int8.",
    ),
    (
        ValueError,
        {"weights": torch.ones(B, device="meta")},
        "`weights` must have values, but is on meta.",
    ),
    (TypeError, {"weights": [1.0, 1.0]}, "`weights` must be a Tensor, but is a list."),
    (
        TypeError,
        {"weights": torch.ones(B, dtype=torch.int64)},
        "`weights` must be float32, float64, float16 or bfloat16, but is int64.",
    ),
    (
        ValueError,
        {"weights": torch.ones(B, 1)},
        "`weights` must have shape (2,), but has shape (2, 1).",
    ),
    (
        ValueError,
        {"weights": torch.ones(B, requires_grad=True)},
        "`weights` must not require grad, since it gets none: detach it, or multiply the costs of "
        'reduction="none" by it.',
    ),
]


@pytest.mark.parametrize(("error", "changes", "message"), CASES, ids=[c[2][:60] for c in CASES])
def test_message(error, changes, message):
    with pytest.raises(error) as raised:
        joiner_rnnt_loss(**arguments(**changes))
    assert type(raised.value) is error
    assert str(raised.value) == message


def test_the_unchanged_arguments_are_right():
    assert joiner_rnnt_loss(**arguments()).item() == pytest.approx(
        joiner_rnnt_loss(**arguments(), reduction="sum").item() / B
    )
