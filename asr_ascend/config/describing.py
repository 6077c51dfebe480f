"""The keys in words: `--help`, docs/configuration.md, and the nearest key to a wrong one."""

from __future__ import annotations

import dataclasses
import difflib
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from asr_ascend.config.keys import Key, Options
from asr_ascend.config.rules import COMMANDS

WIDTH = 100
INTRODUCTIONS = {
    "train": """\
Trains a streaming Conformer or Emformer transducer with the fused RNN-T loss.

  asr-ascend train experiment=demo
  asr-ascend train experiment=smoke data.train_manifest=my.jsonl
  asr-ascend train experiment=demo loss.blank=-1 loss.dtype=bfloat16 trainer.max_epochs=1
  asr-ascend train experiment=demo resume=true
  asr-ascend train experiment=substation_finetune init_from=outputs/base/checkpoints/last.ckpt
  asr-ascend train experiment=distillation \\
      distillation.teacher=outputs/demo/checkpoints/last.ckpt
  asr-ascend train experiment=smoke model=emformer
  asr-ascend train --multirun experiment=smoke seed=1,2,3
""",
    "evaluate": """\
Measures the character error rate by SNR, in a stream and with full context, and the emission delay.

  asr-ascend evaluate outputs/demo/checkpoints/last.ckpt
  asr-ascend evaluate outputs/finetune/checkpoints/last.ckpt \\
      baseline=outputs/base/checkpoints/last.ckpt
  asr-ascend evaluate last.ckpt my.jsonl snr_db=[clean,5] chunk_ms=640
""",
    "transcribe": """\
Transcribes audio as a stream.

  asr-ascend transcribe a.wav last.ckpt
  asr-ascend transcribe recordings/ last.ckpt format=json
  arecord -f S16_LE -r 16000 -c 1 | asr-ascend transcribe - last.ckpt
""",
}
ENDINGS = {
    "train": """\
A run is in output_dir: checkpoints/ (last.ckpt, best-*.ckpt, average.ckpt), metrics.csv, tb/,
config.json.
--cfg job prints the config and stops; --multirun runs every combination of comma lists.
""",
    "evaluate": """\
Writes report.md with its pictures, report.json, utterances.jsonl and a noisy example to out_dir,
and the same for TensorBoard to out_dir/tb/evaluation. --cfg job prints the config and stops.
""",
    "transcribe": """\
The time of a token is the end of the 40 ms frame in which the likeliest alignment of the whole
utterance gives it. JSON also has emitted_ms, the end of the frame in which the stream gave it.
Results go to stdout. Status 1: a file of the folder could not be read. Status 2: bad input.
""",
}


def groups_of(command: str) -> Iterator[tuple[str, str, list[Key]]]:
    """Yields name, description and keys of each group of a command; the first has no name."""
    pending: list[tuple[str, str, type[Options]]] = [("", "", COMMANDS[command])]
    while pending:
        name, about, kind = pending.pop(0)
        yield name, about, kind.keys()
        pending += [(inner, text, part) for inner, (part, text) in kind.groups().items()]


def help_text(command: str, values: Mapping[str, Any], choices: Mapping[str, list[str]]) -> str:
    """Returns the text that `--help` prints.

    Args:
        command: `train`, `evaluate` or `transcribe`.
        values: the config as it is now; a key that it lacks is shown with its default.
        choices: options of each group of configs.
    """
    parts = [INTRODUCTIONS[command]]
    if choices:
        lines = [f"  {group}={'|'.join(options)}" for group, options in choices.items()]
        parts.append("\n".join(["Groups of keys that conf/ holds:", *lines, ""]))
    parts.append("Every key with its value now, and what it may be. Change it with key=value.\n")
    for name, about, keys in groups_of(command):
        if name:
            parts += textwrap.wrap(f"{name}: {about}", WIDTH)
        parts += [_help_of(key, values) for key in keys]
        parts.append("")
    return "\n".join([*parts, ENDINGS[command].rstrip()])


def _help_of(key: Key, values: Mapping[str, Any]) -> str:
    value = _value_now(key, values)
    shown = "must be given" if value is dataclasses.MISSING else shown_in_a_command(value)
    about = textwrap.wrap(f"{key.about} ({key.rule.wanted})", WIDTH - 6, break_on_hyphens=False)
    return "\n".join([f"  {key.name}={shown}", *(f"      {line}" for line in about)])


def _value_now(key: Key, values: Mapping[str, Any]) -> Any:
    node: Any = values
    for part in key.name.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return key.default
        node = node[part]
    return dataclasses.MISSING if node == "???" else node


def shown_in_a_command(value: Any) -> str:
    """Returns a value as it is written after `key=`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(shown_in_a_command, value))}]"
    return str(value)


def markdown() -> str:
    """Returns the text of docs/configuration.md."""
    parts = [
        "# Configuration",
        "Every key of the three commands that read a config. `python -m asr_ascend.config` writes "
        "this page from the dataclasses in `asr_ascend/config/`, so it can't differ from what the "
        "commands accept.",
        "A key is set with `key=value`, e.g. `asr-ascend train experiment=demo loss.clamp=1.0`. "
        "Lists have no spaces: `snr_db=[clean,5]`. `null` means none. A wrong key or value ends in "
        "one sentence and exit status 2. `--help` of a command shows its keys with the values that "
        "they have now.",
    ]
    for command in COMMANDS:
        parts.append(f"## {command}")
        for name, about, keys in groups_of(command):
            if name:
                parts += [f"### {name}", about]
            rows = ["| key | default | what it may be | what it means |", "|---|---|---|---|"]
            rows += [_row(key) for key in keys]
            parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def _row(key: Key) -> str:
    default = "" if key.default is dataclasses.MISSING else f"`{shown_in_a_command(key.default)}`"
    cells = f"`{key.name}`", default, key.rule.wanted, key.about
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def nearest_key(command: str, name: str) -> Key | None:
    """Returns the key that a wrong name most likely means, if one is near.

    The last part of a name decides: `--lr` finds `optimizer.lr`. Where the group is right, the
    result is a key of that group, or one of exactly this name in another.
    """
    keys = [key for _, _, keys in groups_of(command) for key in keys]
    group, _, last = name.lstrip("-+~").replace("-", "_").rpartition(".")
    own = [key for key in keys if key.name.rpartition(".")[0] == group]
    same = [key for key in keys if key.name.rpartition(".")[2] == last]
    for among in (own, same) if own and group else (same, keys):
        lasts = {key.name.rpartition(".")[2]: key for key in reversed(among)}
        if near := difflib.get_close_matches(last, lasts, 1, 0.7):
            return lasts[near[0]]
    return None


def example_of(key: Key, value: str | None) -> str:
    """Returns the key with the value that was given, or with its default."""
    if value is None or value == "":
        default = "..." if key.default is dataclasses.MISSING else shown_in_a_command(key.default)
        value = default
    return f"{key.name}={value}"
