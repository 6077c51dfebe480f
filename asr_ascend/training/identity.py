"""What tells one training run from another: its keys, and the contents of the files it reads."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from asr_ascend.data.clip_folder import INDEX

PACKAGE = Path(__file__).resolve().parents[1]
# What training runs, relative to the package. Importing and synthesis make manifests, which count
# themselves.
TRAINING = (
    *("train.py", "checkpoints", "config", "data", "decoding", "losses", "models", "system"),
    "training",
)
MAKES_MANIFESTS = ("data/importing", "data/synthesis")
# Where a run lies, how it is shown and how fast it is don't change what comes out of it.
NOT_RESULTS = {
    *("name", "output_dir", "ckpt_path", "resume", "force"),
    *("trainer.progress_bar", "trainer.num_threads", "trainer.checkpoint_every_steps"),
    "trainer.timeout_seconds",
    *("data.num_workers", "data.cache_audio_bytes"),
}
# More of these goes on with a run.
LENGTHS = ("trainer.max_steps", "trainer.max_epochs")
_LISTED = 5


@dataclass(frozen=True)
class RunIdentity:
    """What the results of a run depend on.

    Args:
        keys: values of the config by their whole keys; `ckpt_path` only where the run began from
            another run's checkpoint.
        contents: SHA-256 of the files that a key names, by key.
        sources: SHA-256 of the package's training sources; "" where it isn't known.
    """

    keys: Mapping[str, Any]
    contents: Mapping[str, str]
    sources: str

    @classmethod
    def of(cls, config: Mapping[str, Any], ckpt_path: str | None) -> RunIdentity:
        """Computes the identity of a run with this config.

        Args:
            config: the composed config.
            ckpt_path: another run's checkpoint that this run goes on from; None: none.
        """
        keys = known_keys(config)
        files = _files(config)
        if ckpt_path is not None:
            keys["ckpt_path"] = ckpt_path
            files["ckpt_path"] = [Path(ckpt_path)]
        contents = {key: _digest(paths) for key, paths in files.items() if paths}
        return cls(keys, contents, source_digest())

    @classmethod
    def from_record(cls, record: Any) -> RunIdentity:
        """Reads the identity from the record that `to_record` made.

        What the record lacks is unknown.
        """
        parts = record if isinstance(record, dict) else {}
        keys, contents = (
            part if isinstance(part, dict) else {}
            for part in (parts.get("keys"), parts.get("contents"))
        )
        return cls(keys, contents, str(parts.get("sources", "")))

    def begun_as(self, other: RunIdentity) -> RunIdentity:
        """Returns this run as if it began from the checkpoint that `other` began from, if any."""
        keys, contents = dict(self.keys), dict(self.contents)
        for here, there in ((keys, other.keys), (contents, other.contents)):
            if "ckpt_path" in there:
                here["ckpt_path"] = there["ckpt_path"]
        return RunIdentity(keys, contents, self.sources)

    def to_record(self) -> dict[str, Any]:
        """Returns the identity as plain values."""
        return asdict(self)

    def differences(self, other: RunIdentity) -> list[str]:
        """Returns a phrase for each key in which this run differs from another.

        More steps are no difference.
        """
        lengths = set() if self._is_shorter(other) else set(LENGTHS)
        found = [
            f"`{key}` is {_shown(self.keys, key)} here and {_shown(other.keys, key)} there"
            for key in sorted({*self.keys, *other.keys} - lengths)
            if self.keys.get(key, _ABSENT) != other.keys.get(key, _ABSENT)
        ]
        told = {phrase.split("`")[1] for phrase in found}
        found += [
            f"the contents of `{key}` have changed"
            for key in sorted({*self.contents} & {*other.contents} - told)
            if self.contents[key] != other.contents[key]
        ]
        return found

    def is_longer(self, other: RunIdentity) -> bool:
        """Returns whether this run has more steps or epochs than another run."""
        pairs = [(_limit(self.keys, key), _limit(other.keys, key)) for key in LENGTHS]
        return not self._is_shorter(other) and any(here > there for here, there in pairs)

    def _is_shorter(self, other: RunIdentity) -> bool:
        return any(_limit(self.keys, key) < _limit(other.keys, key) for key in LENGTHS)


def known_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a config's values by their whole keys, without those that don't change results."""
    return {key: value for key, value in _flat(config) if key not in NOT_RESULTS}


def describe_differences(differences: list[str]) -> str:
    """Names the first differences, and says how many more there are."""
    more = len(differences) - _LISTED
    rest = "1 more key differs" if more == 1 else f"{more} more keys differ"
    listed = differences[:_LISTED] + ([rest] if more > 0 else [])
    return "; ".join(listed)


def source_digest() -> str:
    """Computes the SHA-256 of the training sources, 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        if _trains(path):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


_ABSENT = object()


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _shown(keys: Mapping[str, Any], key: str) -> str:
    if key not in keys:
        return "absent"
    return "null" if keys[key] is None else str(keys[key])


def _limit(keys: Mapping[str, Any], key: str) -> float:
    value = keys.get(key, -1)
    return float("inf") if value == -1 or not isinstance(value, int) else value


def _files(config: Mapping[str, Any]) -> dict[str, list[Path]]:
    """What a run reads besides audio: manifests, indices of banks and rooms, checkpoints."""
    data = config["data"]
    found = {
        f"data.{key}": [Path(value)]
        for key, value in data.items()
        if key.endswith("_manifest") and value
    }
    for key in ("noise_banks", "valid_noise_banks"):
        found[f"data.{key}"] = [Path(folder) / INDEX for folder in data[key] or []]
    found["data.rooms_dir"] = [Path(data["rooms_dir"]) / INDEX] if data["rooms_dir"] else []
    checkpoints = {
        "init_from": config["init_from"],
        "distillation.teacher": config["distillation"]["teacher"],
    }
    return {**found, **{key: [Path(path)] for key, path in checkpoints.items() if path}}


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        try:
            with path.expanduser().open("rb") as stream:
                while block := stream.read(2**20):
                    digest.update(block)
        except OSError:
            digest.update(b"missing")
    return digest.hexdigest()


def _trains(path: Path) -> bool:
    place = path.relative_to(PACKAGE)
    return place.parts[0] in TRAINING and not place.as_posix().startswith(MAKES_MANIFESTS)
