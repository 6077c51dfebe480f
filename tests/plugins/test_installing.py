"""Installing and taking back: what is said, and that an import changes nothing."""

from __future__ import annotations

import re
import subprocess
import sys
import types
import warnings

import pytest
import torchaudio

from asr_ascend import plugins
from asr_ascend.plugins import catalog
from asr_ascend.plugins.__main__ import main


def test_an_import_imports_no_framework_and_changes_nothing() -> None:
    program = """
import sys
import asr_ascend.plugins
from asr_ascend.plugins import catalog, __main__
for plug in catalog.PLUGS.values():
    plug.load()
print(sorted({name.split(".")[0] for name in sys.modules} & set(catalog.PLUGS)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=500
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_a_second_install_is_refused() -> None:
    with plugins.installed("torchaudio"):
        message = '`torchaudio` is installed already; call `uninstall("torchaudio")` first.'
        with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
            plugins.install("torchaudio", cpu=True)
        assert list(plugins.active()) == ["torchaudio"]


def test_an_unknown_name() -> None:
    message = f'`name` must be one of {", ".join(catalog.PLUGS)}, but is "torchadio".'
    message += ' Did you mean "torchaudio"?'
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        plugins.install("torchadio")
    with pytest.raises(ValueError, match='must be an installed plug, but is "torchaudio"'):
        plugins.uninstall("torchaudio")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"gpu": True},
            TypeError,
            '`install("torchaudio")` has no option `gpu`; it has cpu, patch, blank_in_targets, '
            "validate.",
        ),
        ({"cpu": 1}, TypeError, "`cpu` must be a bool, but is 1."),
        (
            {"blank_in_targets": "yes"},
            ValueError,
            '`blank_in_targets` must be "error" or "allow", but is \'yes\'.',
        ),
    ],
    ids=["name", "flag", "choice"],
)
def test_wrong_options(options: dict[str, object], error: type, message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        plugins.install("torchaudio", **options)
    assert plugins.active() == {}


@pytest.mark.parametrize("version", ["2.8.0", "2.12.0+cpu", "3.0", "unknown"])
def test_an_unknown_version_is_said(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog.importlib.metadata, "version", lambda name: version)
    message = f"torchaudio {version} is not among the versions that this plug knows (2.9 to 2.11)"
    with (
        pytest.warns(plugins.PluginWarning, match=re.escape(message)),
        plugins.installed("torchaudio"),
    ):
        assert plugins.active()["torchaudio"].version == version


@pytest.mark.parametrize("version", ["2.9.0", "2.9.1+cpu", "2.10.0", "2.11.1"])
def test_nothing_is_said_of_a_known_version(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog.importlib.metadata, "version", lambda name: version)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with plugins.installed("torchaudio"):
            pass


def test_a_name_that_is_bound_elsewhere_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = types.ModuleType("recipe")
    recipe.rnnt_loss = torchaudio.functional.rnnt_loss
    monkeypatch.setitem(sys.modules, "recipe", recipe)
    message = "torchaudio: `recipe.rnnt_loss` still is the old one: import it after the install."
    with pytest.warns(plugins.PluginWarning, match=f"^{re.escape(message)}$"):
        plugins.install("torchaudio", patch=True)
    recipe.rnnt_loss = torchaudio.functional.rnnt_loss
    message = "torchaudio: `recipe.rnnt_loss` still is asr_ascend's: import it again."
    with pytest.warns(plugins.PluginWarning, match=f"^{re.escape(message)}$"):
        plugins.uninstall("torchaudio")


def test_a_name_that_was_changed_again_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchaudio.functional, "rnnt_loss", torchaudio.functional.rnnt_loss)
    plugins.install("torchaudio", patch=True)
    torchaudio.functional.rnnt_loss = len
    message = "`torchaudio.functional.rnnt_loss` was changed again and stays as it is."
    with pytest.warns(plugins.PluginWarning, match=re.escape(message)):
        plugins.uninstall()
    assert torchaudio.functional.rnnt_loss is len


def test_another_signature_is_refused_and_nothing_is_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def other(logits, targets, lengths):
        raise AssertionError

    monkeypatch.setattr(torchaudio.functional, "rnnt_loss", other)
    message = "`torchaudio.functional.rnnt_loss` must take (logits, targets, logit_lengths, "
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}"):
        plugins.install("torchaudio", patch=True)
    assert plugins.active() == {}
    assert torchaudio.functional.rnnt_loss is other


def test_a_framework_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog.Plug, "is_present", lambda plug: False)
    with pytest.raises(ImportError, match=r"^`torchaudio` must be installed to be changed, but "):
        plugins.install("torchaudio")


def test_the_command_lists_every_plug(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.endswith("line, after `from asr_ascend.plugins import install`")
    assert [line.split()[0] for line in lines] == list(catalog.PLUGS)
    assert re.fullmatch(
        r'torchaudio +WeNet, icefall +2\.\d+\.\S+ +install\("torchaudio", cpu=True\)', lines[0]
    )


def test_the_command_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog.Plug, "is_present", lambda plug: False)
    main([])
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:]}
    assert "  not installed; a stand-in  " in rows["warp_rnnt"]
    assert "  not installed  " in rows["speechbrain"]
