"""Folders of sounds with texts: corpora that need no synthesiser."""

import math

import pytest
import soundfile
import torch

from asr_ascend.data.manifest import Utterance, write_manifest
from tests.support.speech_like import write_wav


@pytest.fixture
def tone_corpus(tmp_path):
    """Function (name, texts, seconds) -> path of a manifest with one tone per text."""

    def make(name, texts, seconds=1.0):
        utterances = []
        for number, text in enumerate(texts):
            length = round(16000 * (seconds + 0.05 * number))
            wave = torch.sin(torch.arange(length) * (2 * math.pi * (200 + 50 * number) / 16000))
            path = tmp_path / f"{name}{number}.wav"
            soundfile.write(path, (0.3 * wave).numpy(), 16000)
            utterances.append(Utterance(f"{name}{number}", path, text, length / 16000))
        manifest = tmp_path / f"{name}.jsonl"
        write_manifest(manifest, utterances)
        return manifest

    return make


@pytest.fixture
def folder(tmp_path):
    """Function (texts by name) -> a folder of a second of sound and a text each."""

    def make(**texts):
        for name, text in texts.items():
            write_wav(tmp_path / "rec" / f"{name}.wav")
            (tmp_path / "rec" / f"{name}.txt").write_text(text, encoding="utf-8")
        return tmp_path / "rec"

    return make
