"""Character error rate by SNR, streaming next to full context, and emission delay.

``python -m asr_ascend.evaluate checkpoint=outputs/demo/checkpoints/last.ckpt``
"""

from __future__ import annotations

import os

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # see train.py

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from asr_ascend.checkpoints.checkpoint import CheckpointError, TrainedModel, load_model
from asr_ascend.config.command_options import EvaluateOptions
from asr_ascend.config.composing import run_entry
from asr_ascend.config.frames import encoder_frames
from asr_ascend.config.keys import ConfigError
from asr_ascend.data.audio import AudioError, print_warnings, read_utterance
from asr_ascend.data.manifest import ManifestError, Utterance, has_text, load_manifest
from asr_ascend.data.noise import (
    NoiseError,
    StoredBank,
    WeightedBanks,
    check_names,
    is_active,
    mix_at_snr,
    simulated_noise,
)
from asr_ascend.data.seeding import seeded_generator
from asr_ascend.decoding import Hypothesis, greedy_decode
from asr_ascend.decoding.beam import beam_decode
from asr_ascend.decoding.chunks import evaluation_chunks
from asr_ascend.decoding.metrics import EmissionDelays, character_errors, emission_delays
from asr_ascend.evaluation import report
from asr_ascend.evaluation.example import EXAMPLE_SNR_DB, write_example
from asr_ascend.evaluation.memory import check_memory
from asr_ascend.evaluation.pictures import draw_training, log_to_tensorboard, training_caption
from asr_ascend.system.paths import folder_fault
from asr_ascend.system.progress import tracked


@dataclass(frozen=True)
class Spoken:
    """One utterance of a set, its speech and the noise that every SNR of it is mixed from."""

    utterance: Utterance
    set_name: str
    speech: Tensor
    noise: Tensor
    noise_kind: str
    sample_rate_hz: int

    def at(self, snr_db: float | None) -> Tensor:
        """Mixes the speech with its noise at `snr_db`, (samples,) float32; None: clean speech."""
        if snr_db is None:
            return self.speech
        return mix_at_snr(self.speech, self.noise, snr_db, self.sample_rate_hz)


def main(options: EvaluateOptions) -> int:
    """Evaluates a checkpoint, prints the table, writes the report and returns the exit status."""
    if options.num_threads:
        torch.set_num_threads(options.num_threads)
    folder = out_dir(options)
    if fault := folder_fault(folder, for_tensorboard=True):
        raise ConfigError(f"`out_dir` must be a folder, but {fault}.")
    trained = load_model(options.checkpoint)
    baseline = _baseline(options.baseline, trained) if options.baseline else None
    given = options.manifest
    manifests = [given] if isinstance(given, str) else list(given)
    utterances = list(load_sets(manifests, options.max_utterances))
    spoken = list(_speak(utterances, options, trained.sample_rate_hz))
    results = decode_all(trained, spoken, options)
    about = {
        "checkpoint": options.checkpoint,
        "step": trained.step,
        "manifests": manifests,
        "decoder": options.decoder,
        "chunk_ms": options.chunk_ms,
        "left_chunks": options.left_chunks,
        "noise_kinds": list(options.noise_banks or options.noise_kinds),
        "unseen_noise_kinds": list(options.unseen_noise_kinds),
        "noise_seed": options.noise_seed,
    }
    before = None
    if baseline is not None:
        was = {"checkpoint": options.baseline, "step": baseline.step}
        before = decode_all(baseline, spoken, options), was
    summary = report.summarise(results, about, options.worst, before)
    print(report.table(summary), flush=True)  # a full disk can't take that away
    folder.mkdir(parents=True, exist_ok=True)
    report.write(summary, results, folder)
    summary["pictures"] = _pictures(trained, spoken[0], options, folder)
    report.write(summary, results, folder)
    pictures = [folder / name for name in ("cer_by_snr.png", *summary["pictures"])]
    log_to_tensorboard(folder / "tb" / "evaluation", summary, pictures, report.markdown(summary))
    said = spoken[0].utterance.text
    print(f"Example at {EXAMPLE_SNR_DB:g} dB: {folder / 'example.wav'}, said: {said}")
    print(f"Report: {folder / 'report.md'}  plot: {folder / 'cer_by_snr.png'}")
    return 0


def _baseline(path: str, trained: TrainedModel) -> TrainedModel:
    baseline = load_model(path)
    if baseline.sample_rate_hz != trained.sample_rate_hz:
        raise ConfigError(
            f"`baseline` must hear speech at the checkpoint's {trained.sample_rate_hz} Hz, but "
            f"{path} hears it at {baseline.sample_rate_hz} Hz."
        )
    return baseline


def out_dir(options: EvaluateOptions) -> Path:
    """Returns the folder of the report: as configured, else the checkpoint's run."""
    if options.out_dir:
        return Path(options.out_dir)
    folder = Path(options.checkpoint).parent
    return folder.parent if folder.name == "checkpoints" else folder


def load_sets(manifests: Sequence[str], limit: int | None) -> Iterator[tuple[str, Utterance]]:
    """Yields utterances with text, each after the name of its set: the stem of its manifest.

    Args:
        manifests: paths.
        limit: the most utterances of a set; None: all.

    Raises:
        ConfigError: two manifests have the same name.
    """
    names = [Path(path).stem for path in manifests]
    if len(set(names)) < len(names):
        raise ConfigError(f"The manifests must have distinct names, but are {', '.join(names)}.")
    for name, path in zip(names, manifests, strict=True):
        kept = [utterance for utterance in load_manifest(path) if has_text(utterance.text)]
        for utterance in kept[:limit]:
            yield name, utterance


def decode_all(
    trained: TrainedModel, spoken: Sequence[Spoken], options: EvaluateOptions
) -> list[report.Decoded]:
    """Decodes every utterance at every SNR, streaming and, if asked for, with full context."""
    contexts = [
        (report.FULL if chunk_frames is None else report.STREAMING, chunk_frames, left_chunks)
        for chunk_frames, left_chunks in evaluation_chunks(trained.model.encoder, options)
    ]
    snrs = [None if snr == "clean" else float(snr) for snr in options.snr_db]
    batches = _batches(spoken, options.batch_seconds)
    work = [(snr, batch) for snr in snrs for batch in batches]
    log_mel = trained.log_mel()
    if any(chunk is None for _, chunk, _ in contexts):
        for batch in batches:  # the longest utterance is a batch's last
            frames = encoder_frames(log_mel.num_frames(batch[-1].speech.numel()))
            check_memory(trained.model.encoder, len(batch), frames, batch[-1].utterance.id)
    results: list[report.Decoded] = []
    for snr, batch in tracked("Decoding", work, shown=options.progress_bar):
        features = [log_mel(item.at(snr)) for item in batch]
        for context in contexts:
            hypotheses = _decode(trained, features, context[1:], options)
            for item, hypothesis, feature in zip(batch, hypotheses, features, strict=True):
                frames = encoder_frames(len(feature))
                results.append(_judge(trained, item, hypothesis, snr, context, frames))
    # Batches are made by length; sets and utterances stand in the order in which they were given.
    order = {(item.set_name, item.utterance.id): index for index, item in enumerate(spoken)}
    places = {snr: index for index, snr in enumerate(snrs)}
    results.sort(key=lambda r: (places[r.snr_db], order[r.set_name, r.id]))
    return results


@torch.inference_mode()
def _decode(
    trained: TrainedModel,
    features: Sequence[Tensor],
    context: tuple[int | None, int | None],
    options: EvaluateOptions,
) -> list[Hypothesis]:
    """Decodes a batch; the chunk mask gives what a stream would (see the models' tests)."""
    lengths = torch.tensor([len(f) for f in features])
    padded = pad_sequence(list(features), batch_first=True)
    encoded, encoded_lengths = trained.model.encode(padded, lengths, *context)
    if options.decoder == "beam":
        return beam_decode(trained.model, encoded, encoded_lengths, options.beam_width)
    return greedy_decode(trained.model, encoded, encoded_lengths)


def _judge(
    trained: TrainedModel,
    item: Spoken,
    hypothesis: Hypothesis,
    snr_db: float | None,
    context: tuple[str, int | None, int | None],
    num_frames: int,
) -> report.Decoded:
    name, chunk_frames, _ = context
    utterance = item.utterance
    # A token of several characters gives them all at its frame.
    pieces = [trained.tokenizer.decode([token]) for token in hypothesis.tokens]
    text = "".join(pieces)
    delays, guessed = EmissionDelays(), 0
    if utterance.token_start_ms is not None:
        delays = emission_delays(
            utterance.text,
            text,
            [f for f, piece in zip(hypothesis.frames, pieces, strict=True) for _ in piece],
            utterance.token_start_ms,
            end_ms := speech_end_ms(item.speech, item.sample_rate_hz),
            chunk_frames,
            num_frames,
            trained.model.encoder.look_ahead_frames,
        )
        starts_ms = utterance.token_start_ms
        ends_ms = [*starts_ms[1:], end_ms]
        guessed = sum(
            ends_ms[token.reference_index] + token.delay_ms + token.chunk_wait_ms
            < starts_ms[token.reference_index]
            for token in delays.tokens
        )
    return report.Decoded(
        id=utterance.id,
        set_name=item.set_name,
        snr_db=snr_db,
        context=name,
        noise="none" if snr_db is None else item.noise_kind,
        reference=utterance.text,
        hypothesis=text,
        errors=character_errors(utterance.text, text),
        delays=delays,
        guessed=guessed,
    )


def speech_end_ms(speech: Tensor, sample_rate_hz: int) -> float:
    """Returns the end in ms of the last 20 ms that are within 40 dB of the loudest 20 ms.

    `speech` is a waveform (samples,).
    """
    frame = sample_rate_hz // 50
    whole = speech[: speech.numel() // frame * frame].view(-1, frame).square().mean(1)
    if whole.numel() == 0:
        return 1000 * speech.numel() / sample_rate_hz
    active = is_active(whole).nonzero()
    return 20.0 * (int(active[-1]) + 1)


def _speak(
    utterances: Sequence[tuple[str, Utterance]], options: EvaluateOptions, sample_rate_hz: int
) -> Iterator[Spoken]:
    """Yields speech and noise of utterances.

    Every second utterance gets kinds of noise that training doesn't contain.
    """
    folders, unseen_kinds = options.noise_banks, options.unseen_noise_kinds
    for kinds in (options.noise_kinds, unseen_kinds):
        if kinds:
            try:
                check_names(kinds)
            except ValueError as error:
                raise ConfigError(str(error)) from error
    bank = WeightedBanks([StoredBank(f, sample_rate_hz) for f in folders]) if folders else None
    for index, (set_name, utterance) in enumerate(utterances):
        unseen = bool(unseen_kinds) and index % 2 == 1
        recording = read_utterance(utterance, sample_rate_hz)
        print_warnings(utterance.audio_path, recording.warnings)
        speech = recording.waveform
        length = speech.numel()
        generator = seeded_generator("evaluate", options.noise_seed, set_name, utterance.id)
        if bank is not None and not unseen:
            noise = bank.crop(length, generator)
        else:
            kinds = unseen_kinds if unseen else options.noise_kinds
            noise = simulated_noise(kinds, length, sample_rate_hz, generator)
        kind = "unseen" if unseen else "known"
        yield Spoken(utterance, set_name, speech, noise, kind, sample_rate_hz)


def _batches(spoken: Sequence[Spoken], seconds: float) -> list[list[Spoken]]:
    """Yields batches of similar length, at most about `seconds` each with padding."""
    batches: list[list[Spoken]] = []
    for item in sorted(spoken, key=lambda s: s.speech.numel()):
        longest = item.speech.numel() / item.sample_rate_hz
        if batches and longest * (len(batches[-1]) + 1) <= seconds:
            batches[-1].append(item)
        else:
            batches.append([item])
    return batches


def _pictures(
    trained: TrainedModel, item: Spoken, options: EvaluateOptions, folder: Path
) -> dict[str, str]:
    """Draws the example and every picture except the CER's; returns a caption for each."""
    captions = {}
    run = out_dir(replace(options, out_dir=None))
    if draw_training(run / "metrics.csv", folder / "training.png"):
        captions["training.png"] = training_caption(trained.options)
    noisy = item.at(EXAMPLE_SNR_DB)
    chunks = evaluation_chunks(trained.model.encoder, options)[0]
    example = item.utterance, item.speech, noisy, chunks, folder
    return {**captions, **write_example(trained, *example)}


def cli(arguments: Sequence[str] | None = None) -> None:
    """Runs the command and ends the program; see `--help`."""
    run_entry(
        "evaluate",
        main,
        (CheckpointError, ManifestError, AudioError, NoiseError),
        arguments=arguments,
    )


if __name__ == "__main__":
    cli()
