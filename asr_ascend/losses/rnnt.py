"""The public loss functions: check the arguments, choose a backend, reduce its costs."""

from torch import Tensor

from asr_ascend.losses import backends, checks, function_transforms
from asr_ascend.losses.one_symbol import loss as one_symbol_loss
from asr_ascend.losses.problem import cost_dtype, make_problem, reduced


def rnnt_loss(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = -1,
    clamp: float = -1.0,
    reduction: str | None = "mean",
    fused_log_softmax: bool = True,
    *,
    fastemit_lambda: float = 0.0,
    delay_penalty: float = 0.0,
    blank_in_targets: str = "error",
    emission_windows: Tensor | None = None,
    band: Tensor | None = None,
    topology: str = "regular",
    reuse_logits: bool = False,
    backend: str | None = None,
    validate: bool = False,
) -> Tensor:
    """Computes the RNN-T loss of a batch: -ln P(targets | logits), over all alignments.

    Args:
        logits: joiner outputs, float32, float64, float16 or bfloat16; the arithmetic is float32
            or better. Packed (N, V): the rows of all samples one after the other, row
            ``t * (U_b + 1) + u`` of sample b, N = sum of ``logit_lengths * (target_lengths + 1)``.
            Or padded (B, T, U + 1, V), where padding is never read and gets zero gradient. Any
            strides; copied only if the last dimension is not contiguous. On an NPU not float64,
            and copied if not contiguous or padded. Padded logits with lengths on the NPU wait for
            the device once, since the number of rows follows from the lengths; nothing waits for
            lengths on the CPU or for packed logits.
        targets: (B, >= max U_b) int32/int64 in [0, V), padded with anything; within
            ``target_lengths`` not ``blank`` but with ``blank_in_targets="allow"``.
        logit_lengths: (B,) int32/int64, T_b >= 1, on the CPU or the device of ``logits``. The
            largest may be below T.
        target_lengths: (B,) int32/int64, U_b >= 0, on the CPU or the device of ``logits``.
        blank: index of blank, in [-V, V - 1]; an int, an integer of NumPy or a 0-d tensor.
        clamp: if above 0, each component of d cost_b / d logits is clipped to [-clamp, clamp]
            before the upstream gradient multiplies it. The value is unaffected.
        reduction: "none" or None, "sum", or "mean", which divides the sum by B.
        fused_log_softmax: False if ``logits`` are log-probabilities already (over V); only the
            entries of blank and label then get a gradient.
        fastemit_lambda: at least 0. Above 0, the derivative of the cost by each label's
            log-probability counts 1 + fastemit_lambda times before it goes on through the softmax,
            so that labels come out sooner (FastEmit; 0.001 to 0.01 in the paper). ``clamp`` comes
            after. The value is unaffected: it is the plain cost, which a model trained this way
            does not quite minimise.
        delay_penalty: in [0, 1e6], nats a frame. Above 0, ``delay_penalty * ((T_b - 1) / 2 - t)``
            is added to the log-probability of every label that is emitted in frame t: early labels
            gain, late ones lose, and one in the middle stays. The value holds it, as k2's does, and
            may be negative. 0.001 to 0.01 are usual. Not on an NPU yet.
        blank_in_targets: "error" refuses a label equal to ``blank``, as of two vocabularies that
            were numbered apart. "allow" takes it for an ordinary label: it moves on to the next
            column by the logit that also moves on to the next frame.
        emission_windows: (B, columns of ``targets``, 2) int32/int64, first and last frame,
            inclusive, in which each label may be emitted, on the CPU or the device of ``logits``;
            None: in every frame. Alignments that leave their windows are left out of the sum, and
            the softmax stays what it is. Any values: frames outside of [0, T_b) add nothing, and
            where no alignment is left the cost is +inf. Windows of padding are never read.
        band: (B, T, 2) int32/int64, T at least every T_b: first and last column of each frame,
            inclusive, on the CPU or the device of ``logits``; None: every column. Packed logits
            then hold the rows of the band's cells only, in the order of t, then u, and every other
            cell is impossible. Columns never fall from frame to frame. They overlap the frame
            before or lie one label above it. The first frame holds column 0, the last one U_b.
            :func:`lattice_band` makes one.
        topology: "regular", where a label stays in its frame, or "one_symbol_per_frame", where it
            takes the frame as a blank does: ``alpha(0, 0) = 0``, a blank leads from (t, u) to
            (t + 1, u), a label from (t, u) to (t + 1, u + 1), and the cost is ``-alpha(T, U)``.
            Then U_b > T_b has no alignment, windows and bands mean the same frames and columns,
            lengths on an NPU come to the host, and torch.compile breaks its graph here.
        reuse_logits: let the gradient overwrite the memory of ``logits``, so that none is
            allocated. Only one backward pass is possible then, and whoever else saved ``logits``
            for a backward pass gets torch's error about an in-place modification. The reference
            checks the same but overwrites nothing.
        backend: "cpu", "npu", "reference" (slow, any device, differentiable twice), or None for
            the native one of the device of ``logits``; never chosen by what happens to be built.
        validate: on an NPU, check targets and lengths that are on the device before the kernel
            starts and what it found afterwards, which waits for the device. Without it they never
            lead out of a tensor, and :func:`check_status` says which are out of place. A label
            costs its own sample: its cost and gradient are NaN. A length says where the rows of
            all later samples begin, so every cost of the call is NaN and every gradient zero.
            Other devices always check.

    Returns:
        A scalar, or (B,) for "none", in nats; float64 for float64 logits and float32 for all
        others. +inf with zero gradient for a sample without a possible alignment, NaN with NaN
        gradient for one with NaN or +inf among its logits; no other sample is affected. With
        B = 0: NaN for "mean", 0 for "sum".

    Raises:
        ValueError: shape, device, length, target, blank, reduction or backend out of place; or
            ``reuse_logits`` with a leaf that requires grad, a last dimension that is not
            contiguous, or logits that overlap in memory.
        TypeError: wrong type or dtype.
        RuntimeError: there is no native backend, or it is not built; a second derivative through
            backend "cpu"; a second backward pass with ``reuse_logits``; forward-mode
            differentiation; torch.vmap; torch.func.grad and the like but for the reference.

    Source:
        Graves 2012, "Sequence Transduction with Recurrent Neural Networks". Gradient through the
        softmax: Li et al. 2019, "Improving RNN Transducer Modeling for End-to-End Speech
        Recognition", eq. 13. FastEmit: Yu et al. 2021, "FastEmit: Low-latency Streaming ASR with
        Sequence-level Emission Regularization". Delay penalty: Kang et al. 2022, "Delay-penalized
        transducer for low-latency streaming ASR" (https://arxiv.org/abs/2211.00490), with the
        offset of k2's `rnnt_loss` (https://github.com/k2-fsa/k2/issues/955). Emission windows:
        Mahadeokar et al. 2021, "Alignment Restricted Streaming Recurrent Neural Network
        Transducer". The signature is torchaudio.functional.rnnt_loss's.
    """
    reduction = checks.checked_reduction(reduction)
    one_symbol = checks.is_one_symbol(topology)
    problem = make_problem(
        logits,
        targets,
        logit_lengths,
        target_lengths,
        blank,
        clamp,
        fused_log_softmax,
        fastemit_lambda,
        blank_in_targets,
        emission_windows,
        band,
        delay_penalty=delay_penalty,
    )
    checks.check_reuse(logits, reuse_logits)
    function_transforms.refuse_forward_mode("rnnt_loss", logits)
    chosen = backends.for_loss("rnnt_loss", logits, backend)
    options = {"reuse_logits": reuse_logits, "validate": validate}
    if one_symbol:
        costs = one_symbol_loss.costs(chosen, logits, problem, **options)
    else:
        costs = chosen.costs(logits, problem, **options)
    return reduced(costs, reduction).to(cost_dtype(logits.dtype))


def rnnt_loss_and_grad(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = -1,
    clamp: float = -1.0,
    fused_log_softmax: bool = True,
    *,
    fastemit_lambda: float = 0.0,
    delay_penalty: float = 0.0,
    blank_in_targets: str = "error",
    emission_windows: Tensor | None = None,
    band: Tensor | None = None,
    topology: str = "regular",
    reuse_logits: bool = False,
    backend: str | None = None,
    validate: bool = False,
) -> tuple[Tensor, Tensor]:
    """Computes RNN-T costs and their gradient in one call, outside of autograd.

    Args:
        logits, targets, logit_lengths, target_lengths, blank, clamp, fused_log_softmax,
            fastemit_lambda, delay_penalty, blank_in_targets, emission_windows, band, topology,
            backend, validate: as for :func:`rnnt_loss`.
        reuse_logits: write the gradient into the memory of ``logits`` and return it there.

    Returns:
        Costs (B,) in nats, float64 for float64 logits and float32 for all others; and
        d cost_b / d logits, clamped, in the shape and dtype of ``logits``. Neither requires grad.

    Raises:
        ValueError, TypeError, RuntimeError: as :func:`rnnt_loss`.
    """
    one_symbol = checks.is_one_symbol(topology)
    problem = make_problem(
        logits,
        targets,
        logit_lengths,
        target_lengths,
        blank,
        clamp,
        fused_log_softmax,
        fastemit_lambda,
        blank_in_targets,
        emission_windows,
        band,
        delay_penalty=delay_penalty,
    )
    checks.check_reuse(logits, reuse_logits)
    chosen = backends.for_loss("rnnt_loss", logits, backend)
    logits, options = logits.detach(), {"reuse_logits": reuse_logits, "validate": validate}
    if one_symbol:
        costs, grad = one_symbol_loss.costs_and_gradient(chosen, logits, problem, **options)
    else:
        costs, grad = chosen.costs_and_gradient(logits, problem, **options)
    return costs.to(cost_dtype(logits.dtype)), grad


def available_backends() -> tuple[str, ...]:
    """Returns the names that ``backend`` takes here and now, fastest first."""
    return backends.available()


function_transforms.refuse_script(rnnt_loss, "hold an `RNNTLoss` in a module, which can be")
function_transforms.refuse_script(rnnt_loss_and_grad, "call it outside of the scripted code")
