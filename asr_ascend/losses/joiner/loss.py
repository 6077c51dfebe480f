"""Joiner and RNN-T loss in one: the logits of all samples never exist together."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from asr_ascend.losses import backends, function_transforms, values
from asr_ascend.losses.backends import LossBackend
from asr_ascend.losses.bands import lattice_band
from asr_ascend.losses.checks import checked_reduction, is_one_symbol
from asr_ascend.losses.joiner import checks
from asr_ascend.losses.joiner.chunk_by_chunk import (
    Rows,
    add_gradient,
    costs_and_rows,
    costs_chunk_by_chunk,
)
from asr_ascend.losses.joiner.rows import GradientSums, JoinerTensors, Wanted
from asr_ascend.losses.joiner.sample_by_sample import costs_sample_by_sample
from asr_ascend.losses.joiner.task import Task, samples_of
from asr_ascend.losses.problem import Problem, make_problem, on_device, reduced

_DEFAULT_MAX_BYTES = 4 * 2**30


@torch.compiler.disable
def joiner_rnnt_loss(
    encoder_out: Tensor,
    predictor_out: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = -1,
    clamp: float = -1.0,
    reduction: str | None = "mean",
    *,
    activation: str = "tanh",
    weights: Tensor | None = None,
    max_dropped_mass: float = 0.0,
    max_bytes: int | None = None,
    logits_dtype: torch.dtype | None = None,
    fastemit_lambda: float = 0.0,
    delay_penalty: float = 0.0,
    blank_in_targets: str = "error",
    emission_windows: Tensor | None = None,
    band: Tensor | None = None,
    topology: str = "regular",
    backend: str | None = None,
    validate: bool = False,
) -> Tensor:
    """Computes the RNN-T loss of ``activation(encoder_out + predictor_out) @ weight.T + bias``.

    Value and gradients are those of the joiner followed by ``rnnt_loss``, but the logits of the
    batch never exist together. There are two ways, which agree to rounding:

    - Sample by sample, for "sum" and "mean": one sample's logits at a time, in one buffer. Their
      gradient takes their place and is used at once. Backward only scales small tensors.
    - Chunk by chunk, for "none", or where one sample's logits would take more than ``max_bytes``:
      a few frames' logits at a time, made again in backward, and about 60 bytes per lattice cell.

    torch.compile breaks its graph here, and refuses ``fullgraph=True``: how much is done at a time
    depends on the values of the lengths.

    Args:
        encoder_out: (B, T, H) float32, float64, float16 or bfloat16, projected to the joiner's H.
        predictor_out: (B, U + 1, H); column u has seen u labels.
        weight: (V, H) of the output layer. Under autocast its product runs in autocast's dtype.
        bias: (V,) or None.
        targets, logit_lengths, target_lengths, blank, clamp, fastemit_lambda, delay_penalty,
            blank_in_targets, emission_windows, band, topology, backend: as for :func:`rnnt_loss`,
            and ``targets`` may be on the CPU wherever the rest is. The loop over samples needs
            lengths and band on the CPU: from elsewhere they are copied there, once per call. With
            windows and no band, only the band that the windows leave is computed, where the backend
            has bands: value and gradient are the same to rounding.
        reduction: "none", "sum", or "mean", which divides the sum by B.
        activation: "tanh" or "relu".
        weights: (B,) float; each sample's cost is multiplied by its weight before the reduction.
            Gets no gradient. 0 leaves a sample out: its cost is 0, even if its logits are NaN.
        max_dropped_mass: at least 0. Above 0 the gradient is approximate (the value never is): the
            lattice cells of each sample with the smallest gradients are left out of the products
            with hidden activations and weight, as many as have a mass of ``max_dropped_mass``
            together. The mass of a cell is half the L1 norm of the gradient of its logits, which
            is at most the posterior probability of passing it. So the gradient of a sample's
            logits changes by at most 2 ``max_dropped_mass`` in L1.
        max_bytes: what the logits may take at any one time; None: 4 GiB. A chunk takes 16 MiB at
            most, and one frame at least.
        logits_dtype: what the logits are rounded to; None: the dtype of the product.
        validate: as for :func:`rnnt_loss`. On an NPU targets on the CPU are always checked; from
            the device they come to the host with ``validate`` alone, and without it a label out of
            place costs its own sample, whose cost is NaN.

    Returns:
        A scalar, or (B,) for "none", in nats; float64 for float64 logits and float32 for all
        others.

    Raises:
        ValueError: shape, device, length, target or option out of place.
        TypeError: wrong type or dtype.
        RuntimeError: no backend, as for :func:`rnnt_loss`; backward with create_graph=True;
            forward-mode differentiation, torch.func.grad and the like, torch.vmap.

    Source:
        Sample by sample: Braun et al. 2023, "Neural Transducer Training: Reduced Memory Consumption
        with Sample-wise Computation". Gradient in the forward pass: the fused linear cross-entropy
        of Liger-Kernel, Hsu et al. 2024.
    """
    inputs = encoder_out, predictor_out, weight, bias
    checks.check_inputs(*inputs)
    function_transforms.refuse_vmap(
        "joiner_rnnt_loss", *inputs, targets, logit_lengths, target_lengths
    )
    function_transforms.refuse_forward_mode("joiner_rnnt_loss", *inputs)
    function_transforms.refuse_func_gradient("joiner_rnnt_loss", *inputs)
    reduction = checked_reduction(reduction)
    one_symbol = is_one_symbol(topology)
    checks.check_options(activation, max_dropped_mass, max_bytes, logits_dtype)
    checks.check_batch_size(targets, len(encoder_out))
    # No logits are there yet: a tensor without rows stands for their dtype, device and vocabulary.
    no_rows = weight.new_empty(0, weight.shape[0])
    problem = make_problem(
        no_rows,
        targets,
        logit_lengths,
        target_lengths,
        blank,
        clamp,
        fastemit_lambda=fastemit_lambda,
        delay_penalty=delay_penalty,
        blank_in_targets=blank_in_targets,
        emission_windows=emission_windows,
        band=band,
        targets_may_be_on_cpu=True,
    )
    problem = checks.checked_lengths(encoder_out, predictor_out, problem)
    checks.check_weights(weights, len(encoder_out))
    sample_weights = [1.0] * len(encoder_out) if weights is None else weights.tolist()
    chosen = backends.for_loss("joiner_rnnt_loss", no_rows, backend)
    if band is None and emission_windows is not None and chosen.HAS_BANDS:
        problem = problem._replace(band=_band_of_windows(problem, emission_windows))
    problem, wrong_labels = _with_labels_on_device(problem, no_rows, chosen, validate)
    samples = samples_of(problem, sample_weights)
    task = Task(
        problem, samples, float(max_dropped_mass), chosen, validate, wrong_labels, one_symbol
    )
    make_joiner = functools.partial(
        JoinerTensors.of,
        activation=activation,
        product_dtype=_product_dtype(weight),
        logits_dtype=logits_dtype,
    )
    with torch.autocast(encoder_out.device.type, enabled=False):
        return _loss(inputs, make_joiner, task, max_bytes or _DEFAULT_MAX_BYTES, weights, reduction)


def _band_of_windows(problem: Problem, emission_windows: Tensor) -> Tensor:
    """The cells that the windows leave; a sample without an alignment costs +inf in any band."""
    lengths = problem.logit_lengths, problem.target_lengths
    return lattice_band(emission_windows.cpu(), *lengths, on_empty="widen")


function_transforms.refuse_script(joiner_rnnt_loss, "call it outside of the scripted code")


def _loss(
    inputs: tuple[Tensor, Tensor, Tensor, Tensor | None],
    make_joiner: Callable[..., JoinerTensors],
    task: Task,
    max_bytes: int,
    weights: Tensor | None,
    reduction: str,
) -> Tensor:
    """Chooses the way, sample by sample or chunk by chunk, and computes the loss."""
    joiner = make_joiner(*inputs)
    fits = task.largest_sample() * joiner.logits_row_bytes() <= max_bytes
    whole = fits and not task.one_symbol
    wanted = Wanted(*(t is not None and t.requires_grad for t in inputs))
    if not torch.is_grad_enabled() or not any(wanted):
        with torch.no_grad():
            if whole:
                costs = costs_sample_by_sample(joiner, task, max_bytes, sums=None)
            else:
                costs = costs_chunk_by_chunk(joiner, task, max_bytes)
    elif whole and reduction != "none":
        loss: Tensor = _GradientInForward.apply(
            *inputs, joiner, task, max_bytes, weights, reduction
        )
        return loss
    else:
        costs = _Recomputed.apply(*inputs, make_joiner, task, max_bytes)
    return _reduced(costs, weights, reduction).to(joiner.cost_dtype())


def _with_labels_on_device(
    problem: Problem, no_rows: Tensor, backend: LossBackend, validate: bool
) -> tuple[Problem, Tensor | None]:
    """The problem with int64 labels on the joiner's device; which of them are out of place.

    None where the host has checked them.
    """
    vocab_size, targets = no_rows.shape[1], problem.targets
    checked = backend.checks_on_host(targets, validate)
    if checked:
        values.check_targets(problem, vocab_size)
    problem = problem._replace(targets=on_device(targets.to(torch.int64), no_rows.device))
    return problem, None if checked else values.wrong_labels(problem, vocab_size)


def _product_dtype(weight: Tensor) -> torch.dtype:
    device = weight.device.type
    if torch.is_autocast_enabled(device) and weight.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return weight.dtype


def _reduced(costs: Tensor, weights: Tensor | None, reduction: str) -> Tensor:
    if weights is not None:
        weights = weights.to(costs)
        costs = torch.where(weights == 0, 0.0, costs * weights)
    return reduced(costs, reduction)


class _GradientInForward(torch.autograd.Function):
    """Computes a scalar loss and, already in the forward pass, its gradient up to the upstream
    factor.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        *inputs, joiner, task, max_bytes, weights, reduction = arguments
        sums = GradientSums(joiner, Wanted(*ctx.needs_input_grad[:4]))
        costs = costs_sample_by_sample(joiner, task, max_bytes, sums)
        ctx.save_for_backward(*sums.tensors())
        ctx.dtypes = [None if t is None else t.dtype for t in inputs]
        ctx.divisor = max(1, len(costs)) if reduction == "mean" else 1
        return _reduced(costs, weights, reduction).to(joiner.cost_dtype())

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_to_make_a_graph()
        scale = grad_loss / ctx.divisor
        # The sums stay as they are: a retained graph goes through here again.
        grads = (
            None if total is None else (total * scale).to(dtype)
            for total, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        )
        return *grads, *[None] * 5


class _Recomputed(torch.autograd.Function):
    """Costs (B,), whose upstream gradients are known in the backward pass alone."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        *inputs, make_joiner, task, max_bytes = arguments
        costs, rows = costs_and_rows(make_joiner(*inputs), task, max_bytes)
        # The task has the indices too: saved, torch refuses to go on if they were overwritten.
        ctx.save_for_backward(*inputs, rows.shares, rows.log_norm, *task.problem[:3])
        ctx.rest = make_joiner, task, max_bytes, rows.kept
        return costs

    @staticmethod
    def backward(ctx: Any, grad_costs: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_to_make_a_graph()
        *inputs, shares, log_norm, _, _, _ = ctx.saved_tensors
        make_joiner, task, max_bytes, kept = ctx.rest
        with torch.autocast(grad_costs.device.type, enabled=False):
            joiner = make_joiner(*inputs)
            sums = GradientSums(joiner, Wanted(*ctx.needs_input_grad[:4]))
            rows = Rows(shares, log_norm, kept)
            add_gradient(sums, joiner, task, rows, grad_costs.tolist(), max_bytes)
        grads = (
            None if total is None else total.to(given.dtype)
            for total, given in zip(sums.tensors(), inputs, strict=True)
        )
        return *grads, *[None] * 3


def _refuse_to_make_a_graph() -> None:
    if torch.is_grad_enabled():
        raise RuntimeError(
            "`joiner_rnnt_loss` can't run backward with create_graph=True: second derivatives need "
            'the joiner and `rnnt_loss` with backend="reference".'
        )
