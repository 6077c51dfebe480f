"""One noisy utterance of an evaluation, to be listened to, looked at and transcribed."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from asr_ascend.checkpoints.checkpoint import TrainedModel
from asr_ascend.data.manifest import Utterance
from asr_ascend.data.wav import write_wav
from asr_ascend.decoding import greedy_decode
from asr_ascend.decoding.chunks import Chunks
from asr_ascend.evaluation.lattice_picture import plot_alignment, token_labels
from asr_ascend.evaluation.pictures import draw_example
from asr_ascend.system.atomic import write_json_lines

EXAMPLE_SNR_DB = 5.0
SPECTROGRAM, ALIGNMENT = "example.png", "example_alignment.png"


def write_example(
    trained: TrainedModel,
    utterance: Utterance,
    speech: Tensor,
    noisy: Tensor,
    chunks: Chunks,
    folder: Path,
) -> dict[str, str]:
    """Writes example.wav and .json, its spectrogram and, if any token is decoded, its alignment.

    Args:
        trained: the model that decodes.
        utterance: the utterance with its text.
        speech, noisy: (samples,) at the model's rate, without and with noise at `EXAMPLE_SNR_DB`.
        chunks: encoder frames of a chunk, and chunks of the past; both None for full context.
        folder: where the files go.

    Returns:
        A caption for each picture, by the name of its file.
    """
    sample_rate_hz = trained.sample_rate_hz
    peak = float(noisy.abs().max()) if noisy.numel() else 0.0
    write_wav(folder / "example.wav", (noisy / max(1.0, peak)).numpy(), sample_rate_hz)
    record = {
        "id": utterance.id,
        "snr_db": EXAMPLE_SNR_DB,
        "audio_filepath": "example.wav",
        "text": utterance.text,
    }
    write_json_lines(folder / "example.json", [record])
    title = f"{utterance.id} at {EXAMPLE_SNR_DB:g} dB"
    text, alignment = _draw_alignment(trained, noisy, chunks, folder / ALIGNMENT, title)
    waves = speech, noisy, EXAMPLE_SNR_DB, sample_rate_hz
    draw_example(folder / SPECTROGRAM, *waves, utterance.text, text)
    said = (
        f"One utterance at {EXAMPLE_SNR_DB:g} dB ([example.wav](example.wav)), said: "
        f"{utterance.text}"
    )
    if not alignment:
        return {SPECTROGRAM: f"{said}. Heard: nothing."}
    return {SPECTROGRAM: said, ALIGNMENT: alignment}


@torch.inference_mode()
def _draw_alignment(
    trained: TrainedModel, noisy: Tensor, chunks: Chunks, path: Path, title: str
) -> tuple[str, str]:
    """Draws the lattice of the decoded text, and returns text and caption.

    The caption is empty where there is nothing to draw.
    """
    model = trained.model
    features = trained.log_mel()(noisy)[None]
    encoded, lengths = model.encode(features, torch.tensor([features.shape[1]]), *chunks)
    (hypothesis,) = greedy_decode(model, encoded, lengths)
    path.unlink(missing_ok=True)
    if not hypothesis.tokens:
        return "", ""
    text = trained.tokenizer.decode(hypothesis.tokens)
    tokens = torch.tensor(hypothesis.tokens)
    logits = model.join_packed(encoded, lengths, tokens[None], torch.tensor([len(tokens)]))
    pieces = [trained.tokenizer.id_to_piece(token) for token in hypothesis.tokens]
    logits = logits.unflatten(0, (int(lengths), len(tokens) + 1))
    plot_alignment(path, logits, tokens, model.blank, pieces, title, hypothesis.frames)
    caption = (
        f"Heard: {text}. Dark is where the model's "
        "alignments of it go, the line is the likeliest, dots are when the stream gave the tokens."
    )
    labels = token_labels(pieces)
    if labels == [str(number) for number in range(1, len(pieces) + 1)] != pieces:
        numbered = ", ".join(f"{n} {piece}" for n, piece in zip(labels, pieces, strict=True))
        caption += f" Tokens are numbered, for want of a font with their characters: {numbered}."
    return text, caption
