"""max_dropped_mass on a trained model: time and error of the gradient against the exact one.

The checkpoint's output layer is widened to 5,000 rows, the new ones with a bias of -20, so that a
small model costs what a large vocabulary costs and its posteriors stay those of a trained model.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from asr_ascend.checkpoints.checkpoint import load_model
from asr_ascend.data.audio import load_audio
from asr_ascend.data.features import LogMel
from asr_ascend.data.manifest import load_manifest
from asr_ascend.data.noise.kinds import substation_noise
from asr_ascend.data.noise.mixing import mix_at_snr
from asr_ascend.losses import joiner_rnnt_loss, rnnt_loss
from asr_ascend.models.joiner import packed_cells
from asr_ascend.system.figures import picture

VOCAB_SIZE = 5000
MASSES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
NAMES = ("encoder", "predictor", "weight", "bias")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Runs, prints a table, draws the curve."""
    inputs, indices, blank = joiner_inputs(arguments)
    rows = int((indices[1] * (indices[2] + 1)).sum())

    def fused(mass: float) -> Tensor:
        return joiner_rnnt_loss(*inputs, *indices, blank, max_dropped_mass=mass)

    def packed() -> Tensor:
        sample, t, u = packed_cells(indices[1], indices[2] + 1, torch.device("cpu"))
        hidden = inputs[0].flatten(0, 1).index_select(0, sample * inputs[0].shape[1] + t)
        hidden += inputs[1].flatten(0, 1).index_select(0, sample * inputs[1].shape[1] + u)
        logits = torch.nn.functional.linear(hidden.tanh_(), inputs[2], inputs[3])
        return rnnt_loss(logits, *indices, blank, reuse_logits=True)

    steps = {"packed": packed} | {mass: lambda mass=mass: fused(mass) for mass in MASSES}
    seconds: dict[Any, list[float]] = {key: [] for key in steps}
    gradients: dict[Any, list[Tensor]] = {}
    for _ in range(1 + arguments.repeats):  # the first to warm up
        for key, step in steps.items():
            for leaf in inputs:
                leaf.grad = None
            start = time.perf_counter()
            step().backward()
            seconds[key].append(time.perf_counter() - start)
            gradients[key] = [leaf.grad for leaf in inputs]
    result: dict[str, Any] = {"rows": rows, "masses": MASSES, "points": []}
    exact = gradients[0.0]
    apart = error_of(gradients["packed"], exact)
    if max(apart) > 1e-4:
        raise SystemExit(f"fused and packed gradients differ by {apart}")
    print(f"{len(indices[1])} utterances, {rows} cells, V={VOCAB_SIZE}, {arguments.checkpoint}")
    print("mass D    ms   speed-up (to exact, to packed)   error of " + ", ".join(NAMES))
    base = middle(seconds[0.0]), middle(seconds["packed"])
    for mass in MASSES:
        errors, own = error_of(gradients[mass], exact), middle(seconds[mass])
        point = {"mass": mass, "seconds": seconds[mass][1:], "errors": errors}
        result["points"].append(point | {"speedup": base[0] / own, "to_packed": base[1] / own})
        shown = "  ".join(f"{error:.1e}" for error in errors)
        print(f"{mass:6g}  {1e3 * own:5.0f}   {base[0] / own:.2f}, {base[1] / own:.2f}   {shown}")
    draw(result, arguments.plot)
    return result


def joiner_inputs(arguments: argparse.Namespace) -> tuple[list[Tensor], list[Tensor], int]:
    """Leaves (encoder, predictor, weight, bias) of noisy utterances; targets and lengths; blank."""
    trained = load_model(arguments.checkpoint)
    model, log_mel = trained.model, LogMel()
    features, targets = [], []
    utterances = load_manifest(arguments.manifest)[: arguments.utterances]
    for number, utterance in enumerate(utterances):
        speech = load_audio(utterance.audio_path)
        noise = substation_noise(len(speech), 16000, torch.Generator().manual_seed(number))
        features.append(log_mel(mix_at_snr(speech, noise, arguments.snr_db)))
        targets.append(torch.tensor(trained.tokenizer.encode(utterance.text)))
    lengths = torch.tensor([len(one) for one in features])
    labels = torch.tensor([len(one) for one in targets])
    padded = pad_sequence(targets, batch_first=True, padding_value=model.blank)
    with torch.no_grad():
        encoded, frames = model.encode(pad_sequence(features, batch_first=True), lengths, 8, 4)
        terms = model.joiner_terms(encoded, padded, labels)
        extra = VOCAB_SIZE - len(terms.bias)
        weight = torch.cat([terms.weight, terms.weight.new_zeros(extra, terms.weight.shape[1])])
        bias = torch.cat([terms.bias, terms.bias.new_full((extra,), -20.0)])
    inputs = terms.encoder, terms.predictor, weight, bias
    leaves = [leaf.detach().clone().requires_grad_() for leaf in inputs]
    return leaves, [padded, frames.cpu(), labels], model.blank


def error_of(actual: list[Tensor], exact: list[Tensor]) -> list[float]:
    """Largest change of each tensor, relative to its largest component."""
    return [float((a - e).abs().max() / e.abs().max()) for a, e in zip(actual, exact, strict=True)]


def middle(seconds: list[float]) -> float:
    """Median, without the first."""
    return sorted(seconds[1:])[len(seconds[1:]) // 2]


def draw(result: dict[str, Any], path: str) -> None:
    """Speed-up and error over the mass."""
    points = result["points"][1:]
    masses = [point["mass"] for point in points]
    with picture(Path(path), (6.4, 5.6), dpi=120) as figure:
        speed, error = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2))
        speed.semilogx(masses, [p["to_packed"] for p in points], "ko-", ms=4)
        speed.set_ylabel("speed-up over\njoiner + rnnt_loss")
        speed.set_ylim(bottom=0)
        speed.grid(alpha=0.3)
        for index, name in enumerate(NAMES):
            error.loglog(masses, [p["errors"][index] for p in points], "o-", ms=4, label=name)
        error.axhline(1e-3, color="grey", lw=0.8, ls=":")
        error.set_xlabel("max_dropped_mass")
        error.set_ylabel("largest error of a gradient\nrelative to its largest component")
        error.grid(alpha=0.3)
        error.legend(title="gradient of", loc="upper left")
    print(f"plot: {path}")
