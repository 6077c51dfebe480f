"""Sentences of a substation's defect records, for the embedded corpus.

A grammar that can be guessed teaches a streaming model to emit words before they are spoken. So
training texts are 20% commands, 30% readings with random numbers, 40% free orders of phrases and
digits, and 10% syllables in any order, and no held-out text occurs in training.
"""

from __future__ import annotations

import random
from collections.abc import Callable

SPECIFICATION_SENTENCE = "记录二号主变油温过高并生成紧急缺陷工单"

_ACTIONS = ("记录", "查询", "检查", "上报", "确认")
_UNITS = ("一号", "二号", "三号", "四号", "五号", "六号")
_EQUIPMENT = (
    *("主变", "换流变", "断路器", "隔离开关", "母线"),
    *("电抗器", "电容器", "避雷器", "互感器"),
)
_DEFECTS = (
    *("油温过高", "油位偏低", "套管渗油", "声音异常", "接头发热"),
    *("瓦斯报警", "压力偏低", "冷却器停运", "局放超标", "绕组温度过高"),
)
_FOLLOW_UPS = ("并生成紧急缺陷工单", "并生成一般缺陷工单", "并通知值班长", "并拍照上传")
_DIGITS = "零一二三四五六七八九"
_QUANTITIES = {
    **{"油温": "度", "压力": "兆帕", "电流": "安"},
    **{"电压": "千伏", "油位": "毫米", "负荷": "兆瓦"},
}


def spoken_number(value: int) -> str:
    """Returns the Chinese reading of 0..999: 三百零五 for 305, 十二 for 12.

    Raises:
        ValueError: `value` is outside 0..999.
    """
    if not 0 <= value <= 999:
        raise ValueError(f"`value` must be in [0, 999], but is {value}.")
    hundreds, rest = divmod(value, 100)
    tens, ones = divmod(rest, 10)
    if value < 10:
        return _DIGITS[value]
    last = _DIGITS[ones] if ones else ""
    if hundreds == 0:
        return (_DIGITS[tens] if tens > 1 else "") + "十" + last
    if rest == 0:
        return _DIGITS[hundreds] + "百"
    middle = _DIGITS[tens] + "十" if tens else "零"
    return _DIGITS[hundreds] + "百" + middle + last


def command(draw: random.Random) -> str:
    """Draws an order: action, equipment, defect and sometimes what to do about it."""
    follow_up = draw.choice((*_FOLLOW_UPS, ""))
    parts = (_ACTIONS, _UNITS, _EQUIPMENT, _DEFECTS)
    return "".join(draw.choice(part) for part in parts) + follow_up


def reading(draw: random.Random) -> str:
    """Draws a measurement: equipment, quantity, a random number, unit."""
    quantity = draw.choice(tuple(_QUANTITIES))
    fraction = "点" + draw.choice(_DIGITS) if draw.random() < 0.3 else ""
    number = spoken_number(draw.randint(0, 999)) + fraction
    where = draw.choice(_UNITS) + draw.choice(_EQUIPMENT)
    return where + quantity + number + _QUANTITIES[quantity]


def free_order(draw: random.Random) -> str:
    """Draws two to five phrases, numbers or strings of digits in any order."""
    fragments: tuple[Callable[[], str], ...] = (
        lambda: draw.choice(_ACTIONS),
        lambda: draw.choice(_UNITS),
        lambda: draw.choice(_EQUIPMENT),
        lambda: draw.choice(_DEFECTS),
        lambda: draw.choice(_FOLLOW_UPS),
        lambda: spoken_number(draw.randint(0, 999)),
        lambda: "".join(draw.choice(_DIGITS) for _ in range(draw.randint(2, 5))),
        lambda: draw.choice(tuple(_QUANTITIES)),
    )
    return "".join(draw.choice(fragments)() for _ in range(draw.randint(2, 5)))


def scrambled(draw: random.Random) -> str:
    """Draws a free order and shuffles its syllables, so that none follows from those before it."""
    characters = list(free_order(draw))
    draw.shuffle(characters)
    return "".join(characters)


def training_text(draw: random.Random) -> str:
    """Draws a text: 20% `command`, 30% `reading`, 40% `free_order`, 10% `scrambled`."""
    kinds = (command, reading, free_order, scrambled)
    return draw.choices(kinds, weights=(0.2, 0.3, 0.4, 0.1))[0](draw)


def held_out_text(draw: random.Random) -> str:
    """Draws an inspector's text: half `command`, half `reading`."""
    return draw.choice((command, reading))(draw)


def distinct_texts(
    kind: Callable[[random.Random], str], count: int, draw: random.Random, taken: set[str]
) -> list[str]:
    """Draws `count` texts of one kind that are not in `taken`, and adds them to it.

    Raises:
        ValueError: 10,000 draws in a row gave no new text.
    """
    texts: list[str] = []
    misses = 0
    while len(texts) < count:
        text = kind(draw)
        if text not in taken:
            taken.add(text)
            texts.append(text)
            misses = 0
        elif (misses := misses + 1) > 10_000:
            raise ValueError(f"`count` must be at most {len(texts)} here, but is {count}.")
    return texts
