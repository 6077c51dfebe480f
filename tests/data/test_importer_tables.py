"""What the importers read from CSV, TSV and JSONL files, and the sentence where they can't."""

import json
import re

import pytest

from asr_ascend.data.importing.source import Entry, Problem, SourceError
from asr_ascend.data.importing.table import Columns, read_csv, read_jsonl
from tests.support.speech_like import lay


def refused(call, message):
    with pytest.raises(SourceError, match=f"^{re.escape(message)}$"):
        call()


def test_csv_by_the_usual_names(tmp_path):
    path = lay(
        tmp_path,
        {
            "my.csv": 'path,sentence,client_id,duration\na.wav,"one, ""two""",ann,1.5\n'
            "\nsub/b.wav,二号,,\nc.wav,too,many,1,columns\n,x,y,1\nd.wav,x,y,long\n",
            "a.wav": None,
        },
    )
    (found,) = (sets := read_csv(path / "my.csv")).values()
    assert list(sets) == ["my"]
    assert found.entries == [
        Entry("a", tmp_path / "a.wav", 'one, "two"', "my.csv line 2", "ann", None, 1.5),
        Entry("sub/b", tmp_path / "sub/b.wav", "二号", "my.csv line 4"),
    ]
    assert [(p.kind, p.where, p.detail) for p in found.problems] == [
        ("bad_line", "my.csv line 5", "it has 5 columns, but the header has 4"),
        ("bad_line", "my.csv line 6", "`path` is empty"),
        ("bad_line", "my.csv line 7", '`duration` must be a number of seconds, but is "long"'),
    ]


def test_tsv_with_chosen_columns_and_stray_quotes(tmp_path):
    """Common Voice: paths below clips, quotes that mean nothing, a translation beside."""
    table = 'client_id\tpath\tsentence\ttranslation\nx1\ta.wav\t"开\topen"\nx2\tb.wav\t关\tshut\n'
    lay(tmp_path, {"train.tsv": table, "test.tsv": table, "clips/a.wav": None})
    sets = read_csv(tmp_path, delimiter="\t", columns=Columns(text="translation", id="client_id"))
    assert list(sets) == ["test", "train"]
    assert [(e.id, e.text, e.audio_path) for e in sets["train"].entries] == [
        ("x1", 'open"', tmp_path / "clips/a.wav"),
        ("x2", "shut", tmp_path / "clips/b.wav"),
    ]
    assert read_csv(tmp_path, delimiter="\t")["test"].entries[0].text == '"开'


def test_csv_without_a_header_and_with_spans(tmp_path):
    lay(tmp_path, {"m.csv": "long.wav|0|2.5|first\nlong.wav|2.5|1|second\n"})
    names = ["wav", "start", "duration", "text"]
    (found,) = read_csv(tmp_path / "m.csv", delimiter="|", header=names).values()
    assert [(e.id, e.offset, e.duration, e.text) for e in found.entries] == [
        ("long-00000000", 0.0, 2.5, "first"),
        ("long-00002500", 2.5, 1.0, "second"),
    ]


def test_tables_whose_columns_are_not_clear(tmp_path):
    path = tmp_path / "m.csv"
    refused(lambda: read_csv(path), f"{path} is not a file.")
    refused(lambda: read_jsonl(tmp_path), f"{tmp_path} holds no .jsonl files.")
    lay(tmp_path, {"m.csv": "path,words\na.wav,x\n"})
    refused(
        lambda: read_csv(path),
        f"{path} doesn't say which of its columns holds the text: name it with --text-field, one "
        "of path, words.",
    )
    refused(
        lambda: read_csv(path, columns=Columns(text="word")),
        f"{path} has no `word`; it has path, words.",
    )
    lay(tmp_path, {"m.csv": "path,text\n"})
    refused(lambda: read_csv(path), f"{path} holds no utterance.")


def test_jsonl_of_this_package_nemo_and_wenet(tmp_path):
    own = {"id": "1", "audio_filepath": "a.wav", "text": "ab", "duration": 1}
    records = {
        "own": [{**own, "token_start_ms": [0, 250.5]}, {**own, "id": 2, "token_start_ms": [1]}],
        "nemo": [{"audio_filepath": "/c/a.wav", "duration": 2.5, "offset": 1, "text": "x"}],
        "wenet": [{"key": "k1", "wav": "/c/b.wav", "txt": "甚至"}],
    }
    for name, lines in records.items():
        text = "".join(json.dumps(line) + "\n" for line in lines)
        lay(tmp_path, {f"{name}.jsonl": text, "a.wav": None})
    sets = read_jsonl(tmp_path)
    assert list(sets) == ["nemo", "own", "wenet"]
    where = "own.jsonl line 1"
    first, second = sets["own"].entries
    assert first == Entry(
        "1", tmp_path / "a.wav", "ab", where, None, None, 1.0, token_start_ms=(0.0, 250.5)
    )
    assert (second.id, second.token_start_ms) == ("2", None)
    (nemo,) = sets["nemo"].entries
    assert (nemo.id, nemo.offset, nemo.duration) == ("c/a-00001000", 1.0, 2.5)
    (wenet,) = sets["wenet"].entries
    assert (wenet.id, str(wenet.audio_path), wenet.text) == ("k1", "/c/b.wav", "甚至")


def test_jsonl_lines_that_cannot_be_understood(tmp_path):
    good = {"audio_filepath": "a.wav", "text": "x", "translation": "y"}
    lines = [
        json.dumps(good),
        "{nonsense",
        "[1]",
        json.dumps({"audio_filepath": "b.wav"}),
        json.dumps({**good, "text": 5}),
        json.dumps({**good, "duration": -1}),
    ]
    (found,) = read_jsonl(lay(tmp_path, {"m.jsonl": "\n".join(lines)})).values()
    assert [entry.text for entry in found.entries] == ["x"]
    assert [(p.where, p.detail) for p in found.problems] == [
        (
            "m.jsonl line 2",
            "it is not JSON (Expecting property name enclosed in double quotes at column 2)",
        ),
        ("m.jsonl line 3", "it is not a JSON object"),
        ("m.jsonl line 4", "`text` is missing"),
        ("m.jsonl line 5", "`text` must be a string, but is 5"),
        ("m.jsonl line 6", "`duration` must be finite and not negative, but is -1"),
    ]
    (other,) = read_jsonl(tmp_path, columns=Columns(text="translation")).values()
    assert [entry.text for entry in other.entries] == ["y", "y"]


def test_a_quote_that_is_never_closed_takes_no_row_with_it_unseen(tmp_path):
    rows = 'path,text\na.wav,x\nb.wav,"open\nc.wav,y\nd.wav,"z"\ne.wav,w\n'
    lay(tmp_path, {"m.csv": rows, "n.csv": 'path,text\na.wav,x\nb.wav,"open\nc.wav,y\n'})
    sets = read_csv(tmp_path)
    detail = "a quoted cell in lines 3 to 5 isn't closed, or goes on after its closing quote"
    assert [entry.id for entry in sets["m"].entries] == ["a", "e"]
    assert sets["m"].problems == [Problem("bad_line", "", "m.csv line 3", detail)]
    assert [entry.id for entry in sets["n"].entries] == ["a"]
    assert sets["n"].problems == [Problem("bad_line", "", "n.csv line 3", detail)]
    path = lay(tmp_path, {"o.csv": 'path,text\nb.wav,"open\n'}) / "o.csv"
    refused(
        lambda: read_csv(path),
        f"{path} holds no utterance; o.csv line 2, for one: a quoted cell in lines 2 to 3 isn't "
        "closed, or goes on after its closing quote.",
    )


def test_lines_of_a_quoted_text_are_joined(tmp_path):
    lay(tmp_path, {"m.csv": 'path,text\na.wav,"合上 \r\n\r\n一号"\r\nb.wav,断开\r\n'})
    (found,) = read_csv(tmp_path).values()
    assert [(e.text, e.where) for e in found.entries] == [
        ("合上 一号", "m.csv line 2"),
        ("断开", "m.csv line 5"),
    ]


def test_a_table_with_a_mark_chinese_columns_and_a_translation(tmp_path):
    content = '\ufeff音频,文本,译文\r\na.wav,"合上,一号","close ""1"""\r\n'
    lay(tmp_path, {"m.csv": content, "a.wav": None})
    for text, expected in (("文本", "合上,一号"), ("译文", 'close "1"')):
        (found,) = read_csv(tmp_path, columns=Columns(audio="音频", text=text)).values()
        assert [(e.text, e.audio_path) for e in found.entries] == [(expected, tmp_path / "a.wav")]


def test_two_columns_of_one_name(tmp_path):
    path = lay(tmp_path, {"m.csv": "path,text,path\na.wav,x,b.wav\n"}) / "m.csv"
    refused(lambda: read_csv(path), f"{path} has two columns `path`; rename one of them.")


def test_halves_of_characters_and_ids_that_are_no_names(tmp_path):
    lines = ['{"wav": "a.wav", "text": "x\\ud800"}', '{"wav": "a.wav", "text": "x", "id": true}']
    path = lay(tmp_path, {"m.jsonl": "\n".join([*lines, '{"wav": "b.wav", "text": "y"}'])})
    (found,) = read_jsonl(path).values()
    assert [entry.id for entry in found.entries] == ["b"]
    assert [problem.detail for problem in found.problems] == [
        "`text` holds half of a character (a lone surrogate)",
        "`id` must be a string, but is true",
    ]
