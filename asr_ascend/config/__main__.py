"""Writes docs/configuration.md: ``python -m asr_ascend.config > docs/configuration.md``."""

from asr_ascend.config.describing import markdown

if __name__ == "__main__":
    print(markdown(), end="")
