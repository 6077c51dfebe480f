"""Full context that memory has no room for is refused before anything is decoded."""

import pytest

from asr_ascend.config.keys import ConfigError
from asr_ascend.decoding.chunks import attention_bytes
from asr_ascend.evaluation import memory
from tests.support.tiny_runs import run


@pytest.mark.parametrize("setting", ["chunk_ms=full", "full_context=true"])
def test_an_evaluation_says_what_is_needed_and_what_is_free(tiny_run, monkeypatch, setting):
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    arguments = (f"checkpoint={tiny_run.checkpoint}", f"manifest={tiny_run.manifest}")
    more = ("snr_db=[clean]", "noise_kinds=[hum]", "out_dir=report", setting)
    done = run("evaluate", *arguments, *more, folder=tiny_run.folder)
    assert done.returncode == 2
    told = done.stderr.splitlines()[-1]
    assert told.startswith("Error: Full context over ")
    assert told.endswith(
        "takes 0.0 GB of memory, but 0.0 GB are free; choose chunks: chunk_ms=320 "
        "full_context=false."
    )
    assert not (tiny_run.folder / "report" / "report.json").exists()


def test_the_numbers_are_of_the_whole_batch(monkeypatch):
    """With 4 heads 44 bytes for each pair of frames: 30,000 frames are 20 minutes."""
    from asr_ascend.config.model_options import ModelOptions
    from asr_ascend.models import build_transducer

    encoder = build_transducer(5, 0, ModelOptions()).encoder
    assert attention_bytes(encoder, 30_000) == 39_600_000_000
    monkeypatch.setattr(memory, "available_bytes", lambda: 79 * 10**9)
    memory.check_memory(encoder, 1, 30_000, "long")
    with pytest.raises(ConfigError) as caught:
        memory.check_memory(encoder, 2, 30_000, "long")
    assert str(caught.value) == (
        "Full context over 2 x 1200 s (utterance 'long') takes 79.2 GB of memory, but 79.0 GB are "
        "free; choose chunks: chunk_ms=320 full_context=false."
    )
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    memory.check_memory(encoder, 2, 10**9, "unknown")
