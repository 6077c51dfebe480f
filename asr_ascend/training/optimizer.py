"""The optimiser: which parameters train, at what rate, and the rate over the steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from asr_ascend.config.keys import ConfigError
from asr_ascend.config.train_options import OptimizerOptions


def frozen_modules(model: nn.Module, names: Sequence[str] | None) -> list[nn.Module]:
    """Freezes modules and returns them; they must also be kept in evaluation mode.

    Args:
        model: the transducer.
        names: e.g. `encoder.subsampling`, `encoder.layers.0`; None: none.

    Returns:
        The modules of these names.

    Raises:
        ConfigError: the model has no module of a name, or nothing is left to train.
    """
    modules = [_module(model, name, "trainer.freeze") for name in names or ()]
    for module in modules:
        module.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("`trainer.freeze` must leave something to train, but leaves nothing.")
    return modules


def build_optimizer(
    model: nn.Module, options: OptimizerOptions, total_steps: int, fused: bool
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """Builds AdamW over the trainable parameters, and the schedule of its rates by step.

    Args:
        model: the transducer, in which modules are already frozen.
        options: rates and their schedule.
        total_steps: optimiser steps of the whole training.
        fused: whether to use torch's fused implementation.

    Raises:
        ConfigError: the model has no module of a name in `lr_factors`.
    """
    optimizer = torch.optim.AdamW(
        parameter_groups(model, options),
        lr=options.lr,
        betas=options.betas,
        weight_decay=options.weight_decay,
        fused=fused,
    )
    shape = options.warmup_steps, options.cosine_last, options.final_lr_ratio
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate_factor(step, total_steps, *shape)
    )
    return optimizer, schedule


def parameter_groups(model: nn.Module, options: OptimizerOptions) -> list[dict[str, Any]]:
    """Groups the trainable parameters by rate, for an optimiser; frozen ones are left out.

    The rate of a parameter is `lr` times two factors. The first is that of the longest name in
    `lr_factors` that it belongs to. The second is `layer_decay`, once for each layer above it and
    once for the top of the encoder. So encoder layer i of L gets layer_decay^(L - i), and
    parameters below the first layer get layer_decay^(L + 1). Parameters outside the encoder or
    above its layers get 1.

    Args:
        model: the transducer.
        options: `lr`, `layer_decay` and `lr_factors` count.

    Returns:
        Groups with `params` and `lr`, those of the full rate first.

    Raises:
        ConfigError: the model has no module of a name in `lr_factors`.

    Source: Clark et al. 2020, "ELECTRA", appendix A (layer-wise learning rate decay).
    """
    factors = dict(options.lr_factors or {})
    for name in factors:
        _module(model, name, "optimizer.lr_factors")
    decays = _layer_decays(model, options.layer_decay or 1.0)
    by_rate: dict[float, list[nn.Parameter]] = {1.0: []}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            owners = [owner for owner in factors if name.startswith(f"{owner}.")]
            factor = factors[max(owners, key=len)] if owners else 1.0
            by_rate.setdefault(factor * decays[name], []).append(parameter)
    return [
        {"params": parameters, "lr": options.lr * factor}
        for factor, parameters in by_rate.items()
        if parameters
    ]


def describe_training(model: nn.Module, options: OptimizerOptions) -> str:
    """Returns a sentence with what is frozen and the rates of the rest; "" for no difference.

    Args:
        model: the transducer, in which modules are already frozen.
        options: as for `parameter_groups`.
    """
    total = sum(parameter.numel() for parameter in model.parameters())
    groups = parameter_groups(model, options)
    trained = sum(parameter.numel() for group in groups for parameter in group["params"])
    rates = sorted({group["lr"] for group in groups})
    if trained == total and rates == [options.lr]:
        return ""
    shown = f"{rates[0]:.2g}" + (f" to {rates[-1]:.2g}" if len(rates) > 1 else "")
    return f"Trains {trained:,} of {total:,} parameters, at a rate of {shown}"


def learning_rate_factor(
    step: int, total_steps: int, warmup_steps: int, cosine_last: float, final_ratio: float
) -> float:
    """Returns the factor of the base rate.

    It has a linear warm-up, a level, and a cosine over the last share of the steps.

    Args:
        step: optimiser steps done so far, from 0.
        total_steps: of the whole training.
        warmup_steps: the factor is (step + 1) / warmup_steps until it reaches 1.
        cosine_last: share of `total_steps`, in [0, 1], that falls along the cosine.
        final_ratio: factor at the end, in [0, 1].

    Returns:
        In (0, 1].
    """
    warm = min(1.0, (step + 1) / max(1, warmup_steps))
    falling = cosine_last * total_steps
    if falling <= 0:
        return warm
    progress = min(1.0, max(0.0, (step - (total_steps - falling)) / falling))
    return warm * (final_ratio + (1 - final_ratio) * 0.5 * (1 + math.cos(math.pi * progress)))


def _layer_decays(model: nn.Module, decay: float) -> dict[str, float]:
    """Factor of each parameter by its depth below the top of the encoder."""
    layers = {
        name: next((int(part) for part in name.split(".") if part.isdigit()), None)
        for name, _ in model.named_parameters()
        if name.startswith("encoder.")
    }
    count = 1 + max((layer for layer in layers.values() if layer is not None), default=-1)
    decays = {}
    seen_a_layer = False
    for name, _ in model.named_parameters():
        layer = layers.get(name)
        seen_a_layer = seen_a_layer or layer is not None
        below = name in layers and layer is None and not seen_a_layer
        depth = count + 1 if below else 0 if layer is None else count - layer
        decays[name] = decay**depth
    return decays


def _module(model: nn.Module, name: str, key: str) -> nn.Module:
    """The module called `name`; the error lists the names that stand where it was looked for."""
    found, path = model, ""
    for part in name.split("."):
        children = dict(found.named_children())
        if part not in children:
            owner = f"`{path}`" if path else "the model"
            known = ", ".join(children) or "no modules"
            raise ConfigError(f"`{key}` names '{name}', but {owner} has {known}.")
        found, path = children[part], f"{path}.{part}".lstrip(".")
    return found
