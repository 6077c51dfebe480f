"""What the NPU kernels found wrong with their arguments, which stays on the device until asked."""

import torch

from asr_ascend.losses.backends import npu_library
from asr_ascend.losses.backends.npu_library import DEVICE_TYPE

KEPT_CALLS = 64  # rnnt_loss_npu.cpp

# rnnt_loss_fused_tiling_key.h
OK, LOGIT_LENGTH, TARGET_LENGTH, LABEL, ROW_TOTAL, CROSS_CHECK, BAND, BAND_WIDTH = range(8)


def check_status(device: torch.device | str | None = None) -> None:
    """Checks what the latest losses on an NPU found wrong with their arguments.

    Only the kernel checks labels, and lengths that are on the device. Where a length is not
    allowed, every cost of that call is NaN and every gradient zero. Where a label is not allowed,
    cost and gradient of its own sample are NaN. The call itself raises nothing, since that would
    stop the host at every call. This function waits for the device and asks. It looks back over 64
    calls at most and forgets what it has looked at. Losses on other devices raise at once.

    Args:
        device: an NPU; the current one if None.

    Raises:
        ValueError: lengths or targets were not allowed; the message names the samples.
        RuntimeError: the forward and backward scores of a sample disagreed.
    """
    if not npu_library.has_npu() or not npu_library.is_loaded():
        return
    device = torch.device(DEVICE_TYPE if device is None else device)
    if device.type != DEVICE_TYPE:
        return
    if device.index is None:
        device = torch.device(DEVICE_TYPE, torch.accelerator.current_device_index())
    _raise_for_statuses(device, KEPT_CALLS)


def check_latest_status(device: torch.device) -> None:
    """Checks only the latest call, as :func:`check_status` does; others are not forgotten."""
    _raise_for_statuses(device, 1)


def _raise_for_statuses(device: torch.device, count: int) -> None:
    torch.accelerator.synchronize(device)
    statuses = torch.ops.asr_ascend.rnnt_loss_take_statuses(device, count)
    for calls_ago, status in enumerate(statuses):
        error = _status_error(status.cpu().tolist(), calls_ago)
        if error is not None:
            raise error


def _status_error(status: list[int], calls_ago: int) -> Exception | None:
    """What is wrong with a call, or None; a sample's own fault before the batch's."""
    call = "the latest call" if calls_ago == 0 else f"the call {calls_ago} before the latest"
    messages = {
        LOGIT_LENGTH: (
            "`logit_lengths` must be at least 1 and at most the frames of a `band`, "
            "but is not for {samples} of {call}."
        ),
        TARGET_LENGTH: (
            "`target_lengths` must be at least 0 and at most the columns of `targets`, "
            "but is not for {samples} of {call}."
        ),
        BAND: (
            "`band` must hold columns that never fall from frame to frame, overlap or meet at a "
            "step of one label, begin with column 0 and end with the last one, but does not for "
            "{samples} of {call}."
        ),
        BAND_WIDTH: (
            "`band` on an NPU must have at most 1024 columns in a frame of utterances of more than "
            "1024 frames, but has more for {samples} of {call}."
        ),
        LABEL: (
            "`targets` must be in [0, V - 1] and, unless allowed, not contain `blank`, "
            "but do not for {samples} of {call}."
        ),
        ROW_TOTAL: (
            "packed `logits` must have sum(logit_lengths * (target_lengths + 1)) rows, or as many "
            "as a `band` has cells, but do not in {call}."
        ),
        CROSS_CHECK: (
            "the forward and backward scores of {samples} of {call} disagree: this is a fault in "
            'the NPU kernel, please report it; backend="reference" works, slowly.'
        ),
    }
    for code, message in messages.items():
        failing = [sample for sample, value in enumerate(status) if value == code]
        if failing:
            text = message.format(samples=_sample_list(failing), call=call)
            return RuntimeError(text) if code == CROSS_CHECK else ValueError(text)
    return None


def _sample_list(samples: list[int]) -> str:
    *most, last = map(str, samples)
    return f"samples {', '.join(most)} and {last}" if most else f"sample {last}"
