"""Every error of the loss functions, its message in full, on both backends."""

import warnings

import pytest
import torch

from asr_ascend.losses import (
    RNNTLoss,
    pack_logits,
    rnnt_loss,
    rnnt_loss_and_grad,
    unpack_logits,
)

B, T, U1, V = 2, 3, 3, 5
LOGIT_LENGTHS = [3, 2]
TARGET_LENGTHS = [2, 1]
NUM_ROWS = 3 * 3 + 2 * 2
BACKENDS = ["cpu", "reference"]


def arguments(packed=False, **changes):
    shape = (NUM_ROWS, V) if packed else (B, T, U1, V)
    given = {
        "logits": torch.zeros(shape),
        "targets": torch.tensor([[1, 2], [3, 0]]),
        "logit_lengths": torch.tensor(LOGIT_LENGTHS),
        "target_lengths": torch.tensor(TARGET_LENGTHS),
    }
    return given | changes


def message_of(error, function, *args, **kwargs):
    with pytest.raises(error) as raised:
        function(*args, **kwargs)
    assert type(raised.value) is error
    return str(raised.value)


TYPE_ERRORS = [
    ({"logits": [[0.0]]}, "`logits` must be a Tensor, but is a list."),
    (
        {"logits": torch.zeros(B, T, U1, V, dtype=torch.int64)},
        "`logits` must be float32, float64, float16 or bfloat16, but is int64.",
    ),
    ({"targets": [[1, 2]]}, "`targets` must be a Tensor, but is a list."),
    ({"targets": torch.zeros(B, 2)}, "`targets` must be int32 or int64, but is float32."),
    ({"logit_lengths": [3, 2]}, "`logit_lengths` must be a Tensor, but is a list."),
    (
        {"logit_lengths": torch.ones(B, dtype=torch.int16)},
        "`logit_lengths` must be int32 or int64, but is int16.",
    ),
    (
        {"target_lengths": torch.ones(B, dtype=torch.bool)},
        "`target_lengths` must be int32 or int64, but is bool.",
    ),
    ({"blank": 0.5}, "`blank` must be an int, but is 0.5."),
    ({"clamp": "off"}, '`clamp` must be a float, but is "off".'),
    ({"fused_log_softmax": None}, "`fused_log_softmax` must be a bool, but is None."),
    ({"reuse_logits": "no"}, '`reuse_logits` must be a bool, but is "no".'),
]


@pytest.mark.parametrize(("changes", "message"), TYPE_ERRORS)
@pytest.mark.parametrize("function", [rnnt_loss, rnnt_loss_and_grad])
def test_type_errors(function, changes, message):
    assert message_of(TypeError, function, **arguments(**changes)) == message


SHAPE_ERRORS = [
    (
        {"logits": torch.zeros(B, T, V)},
        "`logits` must be (N, V) or (B, T, U + 1, V), but has shape (2, 3, 5).",
    ),
    (
        {"logits": torch.zeros(NUM_ROWS, 0)},
        "`logits` must not be empty in its label and vocabulary dimensions, but has shape (13, 0).",
    ),
    (
        {"logits": torch.zeros(B, T, 0, V)},
        "`logits` must not be empty in its label and vocabulary dimensions, "
        "but has shape (2, 3, 0, 5).",
    ),
    (
        {"targets": torch.ones(3, 2, dtype=torch.int64)},
        "`targets` must be (2, U), but has shape (3, 2).",
    ),
    (
        {"logits": torch.zeros(NUM_ROWS, V), "targets": torch.ones(4, dtype=torch.int64)},
        "`targets` must be (B, U), but has shape (4,).",
    ),
    (
        {"logit_lengths": torch.ones(3, dtype=torch.int64)},
        "`logit_lengths` must have shape (2,), but has shape (3,).",
    ),
    (
        {"target_lengths": torch.ones(2, 1, dtype=torch.int64)},
        "`target_lengths` must have shape (2,), but has shape (2, 1).",
    ),
    (
        {"targets": torch.ones(B, 2, dtype=torch.int64, device="meta")},
        "`targets` must be on cpu as `logits`, but is on meta.",
    ),
    (
        {"logit_lengths": torch.ones(B, dtype=torch.int64, device="meta")},
        "`logit_lengths` must be on the CPU, but is on meta.",
    ),
    (
        {"target_lengths": torch.ones(B, dtype=torch.int64, device="meta")},
        "`target_lengths` must be on the CPU, but is on meta.",
    ),
    ({"clamp": float("nan")}, "`clamp` must be a number, but is nan."),
    ({"blank": 7}, "`blank` must be in [-5, 4], but is 7."),
    ({"blank": -6}, "`blank` must be in [-5, 4], but is -6."),
    ({"backend": "cuda"}, '`backend` must be None, "cpu", "npu" or "reference", but is "cuda".'),
    ({"backend": 0}, '`backend` must be None, "cpu", "npu" or "reference", but is 0.'),
]


@pytest.mark.parametrize(("changes", "message"), SHAPE_ERRORS)
@pytest.mark.parametrize("function", [rnnt_loss, rnnt_loss_and_grad])
def test_shape_device_and_option_errors(function, changes, message):
    assert message_of(ValueError, function, **arguments(**changes)) == message


@pytest.mark.parametrize("reduction", ["average", ""])
def test_unknown_reduction(reduction):
    message = f'`reduction` must be "none", "mean" or "sum", but is "{reduction}".'
    assert message_of(ValueError, rnnt_loss, **arguments(), reduction=reduction) == message
    module = RNNTLoss(reduction=reduction)
    assert message_of(ValueError, module, **arguments()) == message


VALUE_ERRORS = [
    (False, {"logit_lengths": [3, 0]}, "`logit_lengths` must be in [1, 3], but is 0 for sample 1."),
    (False, {"logit_lengths": [4, 2]}, "`logit_lengths` must be in [1, 3], but is 4 for sample 0."),
    (True, {"logit_lengths": [3, 0]}, "`logit_lengths` must be at least 1, but is 0 for sample 1."),
    (
        True,
        {"logit_lengths": [-3, 2]},
        "`logit_lengths` must be at least 1, but is -3 for sample 0.",
    ),
    (
        False,
        {"target_lengths": [3, 1]},
        "`target_lengths` must be in [0, 2], but is 3 for sample 0.",
    ),
    (
        False,
        {"target_lengths": [2, -1]},
        "`target_lengths` must be in [0, 2], but is -1 for sample 1.",
    ),
    # One column of targets, though the logits have room for two labels.
    (
        False,
        {"targets": [[1], [3]]},
        "`target_lengths` must be in [0, 1], but is 2 for sample 0.",
    ),
    # Four columns of targets, though the logits have room for two labels.
    (
        False,
        {"targets": [[1, 1, 1, 1], [2, 2, 2, 2]], "target_lengths": [2, 3]},
        "`target_lengths` must be in [0, 2], but is 3 for sample 1.",
    ),
    (
        True,
        {"target_lengths": [2, 3]},
        "`target_lengths` must be in [0, 2], but is 3 for sample 1.",
    ),
    (
        True,
        {"target_lengths": [2, 0]},
        "packed `logits` must have sum(logit_lengths * (target_lengths + 1)) = 11 rows, "
        "but has 13.",
    ),
    (
        True,
        {"logit_lengths": [3, 3]},
        "packed `logits` must have sum(logit_lengths * (target_lengths + 1)) = 15 rows, "
        "but has 13.",
    ),
    (
        False,
        {"targets": [[1, 2], [5, 0]]},
        "`targets` must be in [0, 4], but is 5 at position 0 of sample 1.",
    ),
    (
        True,
        {"targets": [[1, -1], [3, 0]]},
        "`targets` must be in [0, 4], but is -1 at position 1 of sample 0.",
    ),
    (
        False,
        {"targets": [[1, 4], [3, 0]]},
        "`targets` must not contain `blank`, but is 4 at position 1 of sample 0.",
    ),
    (
        True,
        {"targets": [[1, 2], [0, 0]], "blank": 0},
        "`targets` must not contain `blank`, but is 0 at position 0 of sample 1.",
    ),
]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(("packed", "changes", "message"), VALUE_ERRORS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_value_errors(backend, packed, changes, message, dtype):
    changes = {
        name: torch.tensor(value, dtype=dtype) if isinstance(value, list) else value
        for name, value in changes.items()
    }
    given = arguments(packed, backend=backend, **changes)
    assert message_of(ValueError, rnnt_loss, **given) == message
    assert message_of(ValueError, rnnt_loss_and_grad, **given) == message


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_beyond_64_bits_are_counted_right(backend):
    given = arguments(packed=True, logit_lengths=torch.tensor([2**62, 2]), backend=backend)
    assert message_of(ValueError, rnnt_loss, **given) == (
        "packed `logits` must have sum(logit_lengths * (target_lengths + 1)) = "
        f"{3 * 2**62 + 4} rows, but has 13."
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_wrong_target_among_many_is_found(backend):
    """The first wrong one by sample, whatever the labels that came before."""
    targets = torch.ones(64, 9, dtype=torch.int64)
    targets[41, 7] = 77
    targets[50, 0] = 99
    lengths = torch.full((64,), 2), torch.full((64,), 8)
    given = torch.zeros(64, 2, 9, V), targets, *lengths
    assert message_of(ValueError, rnnt_loss, *given, backend=backend) == (
        "`targets` must be in [0, 4], but is 77 at position 7 of sample 41."
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [rnnt_loss, rnnt_loss_and_grad])
class TestReuseLogits:
    def test_leaf_that_requires_grad(self, function, backend):
        given = arguments(logits=torch.zeros(B, T, U1, V, requires_grad=True), backend=backend)
        assert message_of(ValueError, function, **given, reuse_logits=True) == (
            "`logits` must not be a leaf that requires grad if `reuse_logits` is True, "
            "since the gradient would overwrite it."
        )

    def test_last_dimension_not_contiguous(self, function, backend):
        logits = torch.zeros(V, NUM_ROWS).T
        given = arguments(logits=logits, backend=backend)
        assert message_of(ValueError, function, **given, reuse_logits=True) == (
            "`logits` must be contiguous in its last dimension if `reuse_logits` is True, "
            "but has strides (1, 13)."
        )

    def test_expanded(self, function, backend):
        given = arguments(logits=torch.zeros(1, T, U1, V).expand(B, -1, -1, -1), backend=backend)
        assert message_of(ValueError, function, **given, reuse_logits=True) == (
            "`logits` must not overlap itself in memory if `reuse_logits` is True, "
            "but has shape (2, 3, 3, 5) and strides (0, 15, 5, 1)."
        )

    def test_sliding_windows(self, function, backend):
        logits = torch.zeros(NUM_ROWS + V).unfold(0, V, 1)[:NUM_ROWS]
        given = arguments(logits=logits, backend=backend)
        assert message_of(ValueError, function, **given, reuse_logits=True) == (
            "`logits` must not overlap itself in memory if `reuse_logits` is True, "
            "but has shape (13, 5) and strides (1, 1)."
        )


LOG_PROBS_WARNING = (
    "`fused_log_softmax=False` takes log-probabilities, but some of `logits` are positive: they "
    "look like logits, so pass `logits.log_softmax(-1)` or `fused_log_softmax=True`."
)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("with_grad", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("column", [1, 4], ids=["label", "blank"])
def test_positive_log_probabilities_get_one_warning(backend, with_grad, packed, column):
    """Forward and backward, with autograd and without: one warning per call."""
    given = arguments(packed, fused_log_softmax=False, backend=backend)
    given["logits"] = given["logits"].log_softmax(-1)
    given["logits"].view(-1, V)[0, column] = 0.5  # t = 0, u = 0 of sample 0, whose label is 1
    given["logits"].requires_grad_(with_grad)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loss = rnnt_loss(**given)
        if with_grad:
            loss.backward()
    assert [str(warning.message) for warning in caught] == [LOG_PROBS_WARNING]


@pytest.mark.parametrize("backend", BACKENDS)
def test_log_probabilities_get_no_warning(backend):
    """Rounding above 0, what is not read, and padding are no reason to warn."""
    logits = torch.zeros(B, T, U1, V).log_softmax(-1)
    logits[0, 0, 0, 1] = 9e-4  # read, and within rounding of 0
    logits[0, 0, 0, 3] = 7.0  # neither blank nor the label
    logits[0, 0, 2, 1] = 7.0  # no label is left at u = U
    logits[1, 2] = 7.0  # t >= T_1
    logits[1, :, 2] = 7.0  # u > U_1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rnnt_loss(**arguments(logits=logits), fused_log_softmax=False, backend=backend)
        rnnt_loss(**arguments(logits=logits.abs()), backend=backend)
    assert caught == []


LENGTHS = torch.tensor(LOGIT_LENGTHS), torch.tensor(TARGET_LENGTHS)
LAYOUT_ERRORS = [
    (
        pack_logits,
        (torch.zeros(NUM_ROWS, V), *LENGTHS),
        "`logits` must be (B, T, U + 1, V), but has shape (13, 5).",
    ),
    (
        pack_logits,
        (torch.zeros(1, T, U1, V), *LENGTHS),
        "`logit_lengths` must have shape (1,), but has shape (2,).",
    ),
    (
        pack_logits,
        (torch.zeros(B, 2, U1, V), *LENGTHS),
        "`logit_lengths` must be in [1, 2], but is 3 for sample 0.",
    ),
    (
        pack_logits,
        (torch.zeros(B, T, 2, V), *LENGTHS),
        "`target_lengths` must be in [0, 1], but is 2 for sample 0.",
    ),
    (
        unpack_logits,
        (torch.zeros(B, T, U1, V), *LENGTHS),
        "`packed` must be (N, V), but has shape (2, 3, 3, 5).",
    ),
    (
        unpack_logits,
        (torch.zeros(12, V), *LENGTHS),
        "packed `logits` must have sum(logit_lengths * (target_lengths + 1)) = 13 rows, "
        "but has 12.",
    ),
    (
        unpack_logits,
        (torch.zeros(NUM_ROWS, V), LENGTHS[0], LENGTHS[1][:1]),
        "`target_lengths` must have shape (2,), but has shape (1,).",
    ),
    (
        unpack_logits,
        (torch.zeros(NUM_ROWS, V), torch.tensor(3), LENGTHS[1]),
        "`logit_lengths` must have shape (1,), but has shape ().",
    ),
    (
        unpack_logits,
        (torch.zeros(NUM_ROWS, V), LENGTHS[0], LENGTHS[1] - 2),
        "`target_lengths` must be at least 0, but is -1 for sample 1.",
    ),
]


@pytest.mark.parametrize(("function", "given", "message"), LAYOUT_ERRORS)
def test_pack_and_unpack_errors(function, given, message):
    assert message_of(ValueError, function, *given) == message


def test_pack_and_unpack_type_errors():
    assert message_of(TypeError, pack_logits, [1.0], *LENGTHS) == (
        "`logits` must be a Tensor, but is a list."
    )
    assert message_of(TypeError, unpack_logits, None, *LENGTHS) == (
        "`packed` must be a Tensor, but is a NoneType."
    )
    assert message_of(TypeError, unpack_logits, torch.zeros(NUM_ROWS, V), [3, 2], LENGTHS[1]) == (
        "`logit_lengths` must be a Tensor, but is a list."
    )
    assert message_of(
        TypeError, pack_logits, torch.zeros(B, T, U1, V), LENGTHS[0], LENGTHS[1].float()
    ) == ("`target_lengths` must be int32 or int64, but is float32.")
