"""A hash of everything a training run depends on, to tell whether a finished one can be kept."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]
# What training runs, relative to the package. Importing and synthesis make manifests, which count
# themselves.
TRAINING = (
    *("train.py", "checkpoints", "config", "data", "decoding", "losses", "models", "system"),
    "training",
)
MAKES_MANIFESTS = ("data/importing", "data/synthesis")
# Where a run lies and how it is shown don't change what comes out of it.
NOT_RESULTS = {"output_dir", "ckpt_path", "resume", "force"}


def fingerprint(config: Mapping[str, Any], files: Iterable[Path]) -> str:
    """SHA-256 of a config, the package's training sources and the files a run reads.

    Args:
        config: the composed config; keys that don't change the result are left out.
        files: manifests; a file that is missing counts as empty.

    Returns:
        64 hexadecimal digits.
    """
    digest = hashlib.sha256()
    kept = {key: value for key, value in config.items() if key not in NOT_RESULTS}
    digest.update(json.dumps(kept, sort_keys=True).encode())
    sources = [path for path in sorted(PACKAGE.rglob("*.py")) if _trains(path)]
    for path in [*sources, *files]:
        digest.update(os.fsencode(path.name))
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def _trains(path: Path) -> bool:
    place = path.relative_to(PACKAGE)
    return place.parts[0] in TRAINING and not place.as_posix().startswith(MAKES_MANIFESTS)
