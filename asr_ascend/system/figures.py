"""Pictures with matplotlib: one set-up, fonts with Chinese glyphs, files that appear whole.

matplotlib is imported where it is needed: it takes half a second.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from asr_ascend.system.atomic import replaced_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LATIN = "DejaVu Sans"
# Families with Chinese glyphs, where they are installed.
_CHINESE = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC"),
    *("WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback", "AR PL UMing CN"),
    *("SimHei", "Microsoft YaHei", "PingFang SC", "Arial Unicode MS"),
)


@contextmanager
def picture(path: Path, size: tuple[float, float], dpi: int) -> Iterator[Figure]:
    """Yields an empty figure to draw on; when the context ends, the picture is at `path`.

    Args:
        path: PNG, SVG or PDF by its suffix. Its folder must be there.
        size: width and height in inches.
        dpi: dots per inch.

    Raises:
        OSError: it can't be written. An old file at `path` then stays as it was.
    """
    # pyplot would keep the figure and look for a display.
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.family": _families()}), warnings.catch_warnings():
        # A character that no font has is drawn as a box; a line on stderr for each helps nobody.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        content = io.BytesIO()
        figure.savefig(content, dpi=dpi, format=path.suffix.lstrip(".").lower() or "png")
    with replaced_file(path) as temporary:
        temporary.write_bytes(content.getbuffer())


def drawable(labels: Iterable[str]) -> bool:
    """Returns whether the fonts of this machine have every character of `labels`."""
    from matplotlib import font_manager, ft2font

    fonts = [ft2font.FT2Font(font_manager.findfont(family)) for family in _families()]
    glyphs = {code for font in fonts for code in font.get_charmap()}
    return all(ord(letter) in glyphs for label in labels for letter in label)


def _families() -> Sequence[str]:
    from matplotlib import font_manager

    names = {font.name for font in font_manager.fontManager.ttflist}
    return [_LATIN, *(family for family in _CHINESE if family in names)]
