"""The doctor's table as text and as JSON."""

from __future__ import annotations

from asr_ascend.doctor.lines import Line, Section, as_json, failing, listed, text

SECTIONS = [
    Section(
        "Python",
        [
            Line("torch", "ok", "2.13.0+cpu, C++11 ABI 1", "not printed", ("cpu", "npu")),
            Line("torchaudio", "missing", "it is not installed", "pip install torchaudio"),
        ],
    ),
    Section(
        "NPU",
        [
            Line(
                "CANN libraries",
                "wrong",
                "libhccl.so and libgraph.so are in no folder of LD_LIBRARY_PATH, so torch_npu "
                "can't be imported",
                "source /usr/local/Ascend/set_env.sh && a command is never broken",
                ("npu",),
            ),
            Line("chip", "warning", "npu-smi is not in PATH", None, ("npu",)),
        ],
    ),
]


def test_the_table_is_aligned_and_commands_are_whole():
    assert (
        text(SECTIONS)
        == """\
Python
  torch           ok       2.13.0+cpu, C++11 ABI 1
  torchaudio      missing  it is not installed
                           Mend: pip install torchaudio

NPU
  CANN libraries  wrong    libhccl.so and libgraph.so are in no folder of LD_LIBRARY_PATH, so
                           torch_npu can't be imported
                           Mend: source /usr/local/Ascend/set_env.sh && a command is never broken
  chip            warning  npu-smi is not in PATH"""
    )


def test_what_was_asked_for_is_right_or_not():
    assert failing(SECTIONS, []) == []
    assert failing(SECTIONS, ["cpu"]) == []
    assert [line.subject for line in failing(SECTIONS, ["cpu", "npu"])] == ["CANN libraries"]


def test_json_has_every_line():
    found = as_json(SECTIONS, ["npu"], failing(SECTIONS, ["npu"]))
    assert {key: found[key] for key in ("schema_version", "required", "right", "failing")} == {
        "schema_version": 1,
        "required": ["npu"],
        "right": False,
        "failing": ["CANN libraries"],
    }
    assert found["sections"][0] == {
        "title": "Python",
        "lines": [
            {
                "subject": "torch",
                "status": "ok",
                "found": "2.13.0+cpu, C++11 ABI 1",
                "mend": "not printed",
                "needed_by": ("cpu", "npu"),
            },
            {
                "subject": "torchaudio",
                "status": "missing",
                "found": "it is not installed",
                "mend": "pip install torchaudio",
                "needed_by": (),
            },
        ],
    }


def test_lists_in_words():
    assert [listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"], "or")] == [
        "a",
        "a and b",
        "a, b or c",
    ]
