"""What a checkpoint file holds, found out without making a tensor or running anything of it.

torch.load would make a tensor of whatever size the file states, and reads past the end of a part
that is shorter than stated. So the structure is read here first, by a reader of its own that knows
what torch.save writes for dicts, lists, numbers, strings and tensors, and nothing else.

Source: the opcodes are documented in Python's `pickletools`; the archive (a zip file with
`data.pkl`, and a part `data/<key>` for each storage) in torch's "Serialization semantics".
"""

from __future__ import annotations

import io
import math
import pickletools
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Bytes of an element by the class of its storage.
_STORAGES = {
    f"torch {name}Storage": size
    for name, size in (
        *(("Double", 8), ("Float", 4), ("Half", 2), ("BFloat16", 2), ("Bool", 1)),
        *(("Long", 8), ("Int", 4), ("Short", 2), ("Char", 1), ("Byte", 1)),
    )
}
_ORDERED_DICT = "collections OrderedDict"
_TENSOR = "torch._utils _rebuild_tensor_v2"
_MOST_PICKLE_BYTES = 2**27
_MOST_VALUES = 2**22
_MOST_CHARACTERS = 2**16
_DEEPEST = 32
# A storage may stand in several tensors (tied weights), but not without end.
_MOST_SHARED = 4
_BLOCK_BYTES = 2**20


class OutlineError(ValueError):
    """A file that torch.save doesn't write of a checkpoint; the message ends a sentence."""


@dataclass(frozen=True)
class TensorOutline:
    """A tensor of the file: what is stated of it, checked against the file's parts.

    Args:
        shape: its sizes.
        kind: of its elements as torch's storages name it, such as "Float" or "Byte".
    """

    shape: tuple[int, ...]
    kind: str


@dataclass(frozen=True)
class _Global:
    name: str


@dataclass(frozen=True)
class _Storage:
    kind: str
    elements: int


def read_outline(path: Path) -> Any:
    """Reads the contents of a checkpoint with a `TensorOutline` in the place of each tensor.

    Args:
        path: of a file that begins as a zip archive does.

    Raises:
        OutlineError: a damaged archive, code, a value of another type than a checkpoint has, a
            tensor that isn't whole in the file, more values or longer strings than any model needs.
        OSError: the file can't be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = _checked_parts(archive)
            pickled = next((name for name in sizes if name.endswith("/data.pkl")), "")
            if not pickled:
                raise OutlineError("its archive has no data.pkl")
            if sizes[pickled] > _MOST_PICKLE_BYTES:
                raise OutlineError(f"its data.pkl has {sizes[pickled]:,} bytes")
            contents = archive.read(pickled)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise OutlineError(f"its archive is damaged ({error})") from error
    prefix = pickled.removesuffix("data.pkl") + "data/"
    storages = {
        name.removeprefix(prefix): n for name, n in sizes.items() if name.startswith(prefix)
    }
    try:
        outline = _Reader(storages).read(contents)
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, OutlineError):
            raise
        raise OutlineError("its data.pkl is damaged") from error
    _check_extent(outline, sum(sizes.values()))
    return outline


def _checked_parts(archive: zipfile.ZipFile) -> dict[str, int]:
    """Bytes of each part by its name; every part is stored as it is, and has its checksum."""
    sizes: dict[str, int] = {}
    for part in archive.infolist():
        if part.filename in sizes:
            raise OutlineError(f"its archive holds {part.filename[:80]!r} twice")
        if part.compress_type != zipfile.ZIP_STORED or part.file_size != part.compress_size:
            raise OutlineError(f"its part {part.filename[:80]!r} is compressed")
        sizes[part.filename] = part.file_size
        with archive.open(part) as stream:
            while stream.read(_BLOCK_BYTES):
                pass  # the end of it raises where the checksum is another
    return sizes


class _Reader:
    """Reads a pickle of plain values; of its opcodes only those that torch.save writes for them.

    Args:
        storages: bytes of each storage by its key.
    """

    def __init__(self, storages: dict[str, int]) -> None:
        self.storages = storages
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def read(self, pickled: bytes) -> Any:
        """The value that the pickle holds."""
        for opcode, argument, _ in pickletools.genops(io.BytesIO(pickled)):
            name = opcode.name
            if name in _VALUES:
                self.stack.append(_VALUES[name](argument))
            elif name in _STEPS:
                _STEPS[name](self, argument)
            elif name == "STOP":
                return self.stack.pop()
            elif name != "PROTO":
                raise OutlineError(f"its data.pkl has the opcode {name}, which torch doesn't write")
        raise OutlineError("its data.pkl has no end")

    def string(self, text: str) -> None:
        """Takes a string of a length that names and paths have."""
        if len(text) > _MOST_CHARACTERS:
            raise OutlineError(f"it holds a string of {len(text):,} characters")
        self.stack.append(text)

    def remember(self, index: int) -> None:
        """Keeps the last value for `recall`."""
        self.memo[index] = self.stack[-1]

    def recall(self, index: int) -> None:
        """Takes a value again."""
        self.stack.append(self.memo[index])

    def mark(self, _: None) -> None:
        """Begins a group of values."""
        self.marks.append(len(self.stack))

    def _since_mark(self) -> list[Any]:
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def _last(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise OutlineError("its data.pkl is damaged")
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    def tuple(self, count: int | None) -> None:
        """Makes a tuple of the last values, or of those of a group."""
        self.stack.append(tuple(self._since_mark() if count is None else self._last(count)))

    def append(self, grouped: bool) -> None:
        """Adds values to a list."""
        values = self._since_mark() if grouped else self._last(1)
        _of_type(self.stack[-1], list).extend(values)

    def set_items(self, grouped: bool) -> None:
        """Adds keys with their values to a dict."""
        values = self._since_mark() if grouped else self._last(2)
        keys = values[::2]
        if any(type(key) not in (str, int) for key in keys) or len(values) % 2:
            raise OutlineError("it holds a dict with keys other than strings and integers")
        _of_type(self.stack[-1], dict).update(zip(keys, values[1::2], strict=True))

    def find(self, name: str) -> None:
        """Takes the name of a class or function; only those of tensors and dicts are known."""
        if name not in (_ORDERED_DICT, _TENSOR) and name not in _STORAGES:
            shown = name[:80].replace(" ", ".")
            raise OutlineError(f"it calls {shown}, and weights need no such code")
        self.stack.append(_Global(name))

    def call(self, _: None) -> None:
        """Makes an ordered dict, which is a dict here, or the outline of a tensor."""
        function, arguments = self._last(2)
        if function == _Global(_ORDERED_DICT) and arguments == ():
            self.stack.append({})
        elif function == _Global(_TENSOR):
            self.stack.append(_tensor(*arguments[:4]))
        else:
            raise OutlineError("its data.pkl is damaged")

    def build(self, _: None) -> None:
        """Leaves out what torch adds to a state_dict: the versions of its modules."""
        self._last(1)
        _of_type(self.stack[-1], dict)

    def load_storage(self, _: None) -> None:
        """Takes a storage, which a part of the archive must hold as it is stated."""
        (identity,) = self._last(1)
        kind, storage_class, key, _location, elements = identity
        if kind != "storage" or storage_class.name not in _STORAGES or not _is_size(elements):
            raise OutlineError("it holds a storage that isn't one of torch's")
        stated, there = elements * _STORAGES[storage_class.name], self.storages.get(key)
        if stated != there:
            held = "none of it" if there is None else f"{there:,}"
            raise OutlineError(f"its storage {key[:20]!r} states {stated:,} bytes, but has {held}")
        name = storage_class.name.removeprefix("torch ").removesuffix("Storage")
        self.stack.append(_Storage(name, elements))


def _of_type(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise OutlineError("its data.pkl is damaged")
    return value


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**62


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any) -> TensorOutline:
    """A tensor, whose elements must all lie in its storage, each for itself."""
    whole = isinstance(storage, _Storage) and isinstance(shape, tuple) and _is_size(offset)
    whole = whole and isinstance(strides, tuple) and len(shape) == len(strides)
    if not whole or not all(map(_is_size, (*shape, *strides))):
        raise OutlineError("it holds a tensor whose sizes aren't integers of at least 0")
    count = math.prod(shape)
    steps = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if count > storage.elements or (count and offset + steps >= storage.elements):
        shown = "x".join(map(str, shape[:8]))
        raise OutlineError(
            f"it states a tensor of {shown[:80]} elements, but has {storage.elements:,} of them"
        )
    return TensorOutline(shape, storage.kind)


def _check_extent(outline: Any, held_bytes: int) -> None:
    """Bounds what a walk through the contents takes, however often a value is referred to."""
    values, tensor_bytes = 0, 0
    waiting = [(outline, 0)]
    while waiting:
        value, depth = waiting.pop()
        values += 1
        if values > _MOST_VALUES or depth > _DEEPEST:
            raise OutlineError("it holds more values, or deeper ones, than any model has")
        if isinstance(value, dict):
            waiting += [(item, depth + 1) for item in value.values()]
        elif isinstance(value, list | tuple):
            waiting += [(item, depth + 1) for item in value]
        elif isinstance(value, TensorOutline):
            tensor_bytes += math.prod(value.shape) * _STORAGES[f"torch {value.kind}Storage"]
        elif isinstance(value, _Global | _Storage):
            raise OutlineError("its data.pkl is damaged")
    if tensor_bytes > _MOST_SHARED * held_bytes:
        raise OutlineError(
            f"it states tensors of {tensor_bytes:,} bytes, but its file has {held_bytes:,}"
        )


_VALUES: dict[str, Callable[[Any], Any]] = {
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "EMPTY_DICT": lambda _: {},
    "EMPTY_LIST": lambda _: [],
    "EMPTY_TUPLE": lambda _: (),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"), lambda value: value),
}
_STEPS: dict[str, Callable[[_Reader, Any], None]] = {
    "BINUNICODE": _Reader.string,
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), _Reader.remember),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _Reader.recall),
    "MARK": _Reader.mark,
    "TUPLE": _Reader.tuple,
    "TUPLE1": lambda reader, _: reader.tuple(1),
    "TUPLE2": lambda reader, _: reader.tuple(2),
    "TUPLE3": lambda reader, _: reader.tuple(3),
    "APPEND": lambda reader, _: reader.append(False),
    "APPENDS": lambda reader, _: reader.append(True),
    "SETITEM": lambda reader, _: reader.set_items(False),
    "SETITEMS": lambda reader, _: reader.set_items(True),
    "GLOBAL": _Reader.find,
    "REDUCE": _Reader.call,
    "BUILD": _Reader.build,
    "BINPERSID": _Reader.load_storage,
}
