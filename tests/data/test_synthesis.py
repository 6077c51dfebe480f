"""The embedded corpus: texts, syllable times, the same bytes on every run."""

import json
import random
import re
import subprocess
import sys
import time
from itertools import pairwise

import pytest
import soundfile
import torch

from asr_ascend.data.manifest import load_manifest
from asr_ascend.data.noise import active_speech_power
from asr_ascend.data.synthesis import corpus as synthesis
from asr_ascend.data.synthesis import espeak, phrases

NO_SYNTHESISER = "needs pip install 'asr-ascend[demo]' (espeakng-loader, pypinyin)"
SMALL = synthesis.CorpusConfig(train=6, valid=2, commands=3, unseen=2)


@pytest.fixture(scope="module", autouse=True)
def three_shards():
    """Each shard is a process that imports torch: three are enough here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthesis, "SHARDS", 3)
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    pytest.importorskip("espeakng_loader", reason=NO_SYNTHESISER)
    pytest.importorskip("pypinyin", reason=NO_SYNTHESISER)
    folder = tmp_path_factory.mktemp("corpus") / "demo"
    return folder, synthesis.synthesise(folder, SMALL, workers=1)


def files(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0, "零"), (7, "七"), (10, "十"), (12, "十二"), (20, "二十"), (99, "九十九")),
        *((100, "一百"), (101, "一百零一"), (110, "一百一十"), (305, "三百零五")),
        *((560, "五百六十"), (999, "九百九十九")),
    ],
)
def test_spoken_numbers(value, text):
    assert phrases.spoken_number(value) == text


def test_a_number_out_of_range():
    with pytest.raises(ValueError, match=r"^`value` must be in \[0, 999\], but is 1000\.$"):
        phrases.spoken_number(1000)


def test_held_out_texts_are_not_in_training():
    lines = synthesis.plan(synthesis.CorpusConfig())
    by_split = {}
    for line in lines:
        by_split.setdefault(line.split, []).append(line)
    counts = {split: len(chosen) for split, chosen in by_split.items()}
    assert counts == {"train": 2000, "valid": 60, "commands": 300, "unseen": 120}
    assert len({line.text for line in lines}) == len({line.id for line in lines}) == 2480
    assert by_split["commands"][0].text == "记录二号主变油温过高并生成紧急缺陷工单"
    known = set("".join(line.text for line in by_split["train"]))
    assert all(set(line.text) <= known for line in lines)
    unseen = {line.voice.variant for line in by_split["unseen"]}
    heard = {
        line.voice.variant for split in counts if split != "unseen" for line in by_split[split]
    }
    assert unseen == set(synthesis.UNSEEN_VOICES)
    assert heard == set(synthesis.TRAINING_VOICES)
    assert synthesis.plan(synthesis.CorpusConfig()) == lines
    assert synthesis.plan(synthesis.CorpusConfig(seed=1)) != lines


def test_parts_of_training_texts():
    draw = random.Random(0)
    texts = [phrases.training_text(draw) for _ in range(4000)]
    where = "[一二三四五六]号(主变|换流变|断路器|隔离开关|母线|电抗器|电容器|避雷器|互感器)"
    actions = "(记录|查询|检查|上报|确认)"
    commands = sum(bool(re.match(actions + where, text)) for text in texts)
    readings = sum(text.endswith(("度", "兆帕", "安", "千伏", "毫米", "兆瓦")) for text in texts)
    assert abs(commands / 4000 - 0.2) < 0.03
    assert abs(readings / 4000 - 0.3) < 0.03


def test_scrambled_is_a_shuffled_free_order():
    for seed in range(20):
        free, scrambled = (
            kind(random.Random(seed)) for kind in (phrases.free_order, phrases.scrambled)
        )
        assert sorted(scrambled) == sorted(free)
        assert len(free) < 6 or scrambled != free


def test_more_texts_than_there_are():
    with pytest.raises(ValueError, match=r"^`count` must be at most 2 here, but is 3\.$"):
        phrases.distinct_texts(lambda draw: draw.choice("ab"), 3, random.Random(0), set())


def test_manifests_and_wav_files(corpus):
    folder, description = corpus
    assert {s: v["utterances"] for s, v in description["splits"].items()} == {
        **{"train": 6, "valid": 2},
        **{"commands": 3, "unseen": 2},
    }
    assert description["made"] is True
    for split in ("train", "valid", "commands", "unseen"):
        for utterance in load_manifest(folder / f"{split}.jsonl"):
            info = soundfile.info(utterance.audio_path)
            assert (info.samplerate, info.channels, info.subtype) == (16000, 1, "PCM_16")
            assert utterance.duration == info.frames / 16000
            assert 0.1 < utterance.duration / len(utterance.text) < 0.6
            assert utterance.speaker
    assert not list(folder.glob(".shard*"))


def test_syllable_times_follow_the_speech(corpus):
    folder, _ = corpus
    for utterance in load_manifest(folder / "train.jsonl"):
        starts = utterance.token_start_ms
        samples, _ = soundfile.read(utterance.audio_path, dtype="float32")
        frames = torch.from_numpy(samples)[: len(samples) // 160 * 160].view(-1, 160)
        active = (frames.square().mean(1) > 1e-4 * active_speech_power(frames.flatten())).nonzero()
        assert len(starts) == len(utterance.text)
        gaps = [after - before for before, after in pairwise(starts)]
        assert all(50 < gap < 600 for gap in gaps)
        assert abs(starts[0] - 10 * float(active[0])) <= 60
        assert 50 < 10 * float(active[-1]) - starts[-1] < 700


def test_a_syllable_with_a_stop_starts_in_a_gap(corpus):
    """Times are those of the sound: before 度 (a stop) the signal is weaker than within it."""
    speaker = espeak.Synthesiser()
    speech = speaker.speak("油温度度度度", espeak.Voice("m1", 160))
    power = torch.from_numpy(speech.samples.astype("float32")).square()
    step = speech.rate_hz // 1000
    for start in speech.syllable_starts[3:]:
        closure = power[start - 5 * step : start + 15 * step].mean()
        vowel = power[start + 60 * step : start + 120 * step].mean()
        assert closure < 0.2 * vowel


def test_a_breathy_voice_says_the_same_in_every_process():
    """Its noise comes from a generator that the library seeds with the time in seconds."""
    pytest.importorskip("espeakng_loader", reason=NO_SYNTHESISER)
    program = (
        "import hashlib; from asr_ascend.data.synthesis import espeak; "
        "speech = espeak.Synthesiser().speak('油温', espeak.Voice('f2')); "
        "print(hashlib.sha256(speech.samples.tobytes()).hexdigest(), speech.syllable_starts)"
    )
    said = []
    for _ in range(2):
        said.append(subprocess.check_output([sys.executable, "-c", program]))
        time.sleep(1.1)
    assert said[0] == said[1]


def test_same_bytes_with_two_workers(corpus, tmp_path):
    folder, description = corpus
    again = synthesis.synthesise(tmp_path / "demo", SMALL, workers=2)
    assert again["hash"] == description["hash"]
    assert files(tmp_path / "demo") == files(folder)


def test_the_same_corpus_is_not_made_again(corpus, capsys):
    folder, description = corpus
    before = (folder / "corpus.json").stat().st_mtime_ns
    sizes = ["--train", "6", "--valid", "2", "--commands", "3", "--unseen", "2"]
    assert synthesis.main(["--out", str(folder), *sizes]) == 0
    expected = f"{folder} is up to date (hash {description['hash'][:12]}): nothing to do.\n"
    assert capsys.readouterr().out == expected
    assert (folder / "corpus.json").stat().st_mtime_ns == before
    assert synthesis.synthesise(folder, SMALL)["made"] is False


def test_the_hash_follows_the_config():
    pytest.importorskip("espeakng_loader", reason=NO_SYNTHESISER)
    assert synthesis.corpus_hash(SMALL) == synthesis.corpus_hash(SMALL)
    assert synthesis.corpus_hash(SMALL) != synthesis.corpus_hash(synthesis.CorpusConfig(train=7))


def test_a_failure_leaves_the_old_corpus_and_no_rest(tmp_path, monkeypatch):
    pytest.importorskip("espeakng_loader", reason=NO_SYNTHESISER)
    target = tmp_path / "demo"
    target.mkdir()
    (target / "corpus.json").write_text(json.dumps({"hash": "old"}))
    monkeypatch.setattr(synthesis, "TRAINING_VOICES", ("no-such-voice",))
    monkeypatch.setattr(synthesis, "SHARDS", 1)
    message = r"^espeak-ng has no voice 'cmn-latn-pinyin\+no-such-voice'\.$"
    with pytest.raises(espeak.SynthesisError, match=message):
        synthesis.synthesise(target, SMALL)
    assert files(target) == {"corpus.json": b'{"hash": "old"}'}
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path):
    pytest.importorskip("espeakng_loader", reason=NO_SYNTHESISER)
    # Files of 4 kB at most, in the workers too: a second of speech has 32 kB.
    program = (
        "import resource, sys; from asr_ascend.data.synthesis import corpus as synthesis\n"
        "if __name__ == '__main__':\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\n"
        "    sys.exit(synthesis.main(sys.argv[1:]))\n"
    )
    (tmp_path / "small_files.py").write_text(program)
    sizes = ["--train", "1", "--valid", "0", "--commands", "0", "--unseen", "0"]
    result = subprocess.run(
        [sys.executable, tmp_path / "small_files.py", "--out", tmp_path / "demo", *sizes],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == f"Error: {tmp_path / 'demo'}: File too large."
    assert "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["small_files.py"]


def test_another_folder_is_not_overwritten(tmp_path, capsys):
    pytest.importorskip("espeakng_loader", reason=NO_SYNTHESISER)
    (tmp_path / "thesis.tex").write_text("years of work")
    assert synthesis.main(["--out", str(tmp_path)]) == 2
    message = f"Error: `out` must be empty or hold a corpus, but {tmp_path} holds other files.\n"
    assert capsys.readouterr().err == message
    assert files(tmp_path) == {"thesis.tex": b"years of work"}


def test_missing_packages_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    assert synthesis.main(["--out", str(tmp_path / "demo")]) == 2
    assert capsys.readouterr().err == (
        "Error: Speech synthesis needs the package espeakng_loader: "
        "pip install 'asr-ascend[demo]'\n"
    )


@pytest.mark.parametrize(
    ("text", "voice", "message"),
    [
        ("油温", espeak.Voice("nobody"), "espeak-ng has no voice 'cmn-latn-pinyin+nobody'."),
        (
            "油abc",
            espeak.Voice(),
            "`text` must be one syllable per character, but '油abc' has 4 characters and 2 "
            "syllables.",
        ),
    ],
)
def test_synthesiser_errors(text, voice, message):
    pytest.importorskip("espeakng_loader", reason=NO_SYNTHESISER)
    with pytest.raises(espeak.SynthesisError, match=f"^{re.escape(message)}$"):
        espeak.Synthesiser().speak(text, voice)


@pytest.mark.parametrize(
    ("config", "workers", "message"),
    [
        (synthesis.CorpusConfig(train=-1), 1, "`train` must not be negative, but is -1."),
        (SMALL, 0, "`workers` must be at least 1, but is 0."),
    ],
)
def test_argument_errors(tmp_path, config, workers, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        synthesis.synthesise(tmp_path, config, workers)
