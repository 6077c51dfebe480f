"""The documents: their length, their links, and that both READMEs say the same."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def documents() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    names = listed.stdout.split() if listed.returncode == 0 else []
    return [ROOT / name for name in names] or sorted(ROOT.glob("*.md")) + sorted(
        ROOT.glob("docs/*.md")
    )


def anchors(path: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    text = CODE.sub("", path.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("path", documents(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(path):
    text = CODE.sub("", path.read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{link} is not there"
        if anchor:
            assert anchor in anchors(target), f"{link} has no such heading"


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_the_readme_is_read_in_two_minutes(name):
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= 120


def commands(text: str) -> list[str]:
    """The lines of shell and Python code, without comments."""
    blocks = re.findall(r"^```(?:bash|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [line.partition("#")[0].rstrip() for block in blocks for line in block.splitlines()]


def figures(text: str) -> list[str]:
    return sorted(re.findall(r"\d+(?:[.,]\d+)*", re.sub(r"[年月]", " ", text)))


def test_both_readmes_have_the_same_commands_figures_and_headings():
    english, chinese = (
        (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh-CN.md")
    )
    assert commands(chinese) == commands(english)
    months = "January February March April May June July August September October November December"
    for number, month in enumerate(months.split(), start=1):
        english = english.replace(f" {month} ", f" {number} ")
    assert figures(chinese) == figures(english)
    levels = [
        re.findall(r"^(#+) ", CODE.sub("", text), re.MULTILINE) for text in (english, chinese)
    ]
    assert levels[0] == levels[1]
    links = [
        sorted(set(LINK.findall(text)) - {"README.md", "README.zh-CN.md"})
        for text in (english, chinese)
    ]
    assert links[0] == links[1]
