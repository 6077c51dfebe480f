"""A hash of everything a training run depends on, to tell whether a finished one can be kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent
# Evaluation, transcription and reports read a run but don't change it; importers make manifests,
# which count themselves. Files and folders, relative to the package.
NOT_TRAINING = (
    "evaluate.py",
    "transcribe.py",
    "chunks.py",
    "plots.py",
    "report.py",
    "report_example.py",
    "report_parts.py",
    "report_pictures.py",
    "report_sections.py",
    "compare.py",
    "comparison.py",
    "config.py",
    "config_rules.py",
    "config_values.py",
    "data/importing.py",
    "data/importers/",
)
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
    sources = [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if not path.relative_to(PACKAGE).as_posix().startswith(NOT_TRAINING)
    ]
    for path in [*sources, *files]:
        digest.update(path.name.encode())
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()
