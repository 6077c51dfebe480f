"""Tokenizer: round trips, blank in every place, state, errors."""

import io
import re

import pytest
import torch

from asr_ascend.data.manifest import has_text
from asr_ascend.data.tokenizer import Tokenizer

TEXTS = ["记录二号主变", "go to the left", " a  b ", "ａ１"]


def test_char_pieces_are_the_characters_of_the_texts():
    tokenizer = Tokenizer.train(["ab b", "cab"], blank=0)
    assert tokenizer.pieces[:2] == ["<blk>", "<unk>"]
    assert sorted(tokenizer.pieces[2:]) == sorted(["a", "b", "c", "▁"])
    assert tokenizer.vocab_size == 6


@pytest.mark.parametrize("text", TEXTS)
def test_decode_of_encode_is_the_text(text):
    tokenizer = Tokenizer.train(TEXTS)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode(text)) == len(text)


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_subword_round_trip(model_type):
    texts = ["the red car", "the red bar", "a red bar there", "the bar is near"] * 5
    tokenizer = Tokenizer.train(texts, model_type=model_type, vocab_size=18)
    assert tokenizer.vocab_size == 18
    for text in texts:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("the red car")) < len("the red car")


@pytest.mark.parametrize("blank", range(-6, 6))
def test_blank_can_be_any_id(blank):
    tokenizer = Tokenizer.train(["ab b", "cab"], blank=blank)
    last = Tokenizer.train(["ab b", "cab"], blank=-1)
    ids = tokenizer.encode("cab b")
    assert tokenizer.blank == blank % 6
    assert tokenizer.blank not in ids
    assert tokenizer.pieces[tokenizer.blank] == "<blk>"
    assert [piece for piece in tokenizer.pieces if piece != "<blk>"] == last.pieces[:-1]
    assert [tokenizer.id_to_piece(i) for i in ids] == ["c", "a", "b", "▁", "b"]
    with_blanks = [tokenizer.blank, *(i for token in ids for i in (token, tokenizer.blank))]
    assert tokenizer.decode(with_blanks) == "cab b"
    assert tokenizer.decode(torch.tensor(with_blanks)) == "cab b"


def test_unknown_character_is_unk():
    tokenizer = Tokenizer.train(["ab"], blank=1)
    assert tokenizer.encode("axb")[1] == tokenizer.unk
    assert tokenizer.id_to_piece(tokenizer.unk) == "<unk>"
    assert tokenizer.decode(tokenizer.encode("axb")) == "a\u2047b"


def test_every_character_is_kept_of_a_large_vocabulary_and_of_a_long_text():
    texts = ["".join(chr(0x4E00 + i) for i in range(8500)), "a"]
    tokenizer = Tokenizer.train(texts)
    assert tokenizer.vocab_size == 8500 + 1 + 2
    assert tokenizer.decode(tokenizer.encode(texts[0])) == texts[0]


def test_state_survives_torch_save_with_weights_only():
    tokenizer = Tokenizer.train(TEXTS, blank=3)
    stored = io.BytesIO()
    torch.save(tokenizer.state_dict(), stored)
    stored.seek(0)
    loaded = Tokenizer.from_state_dict(torch.load(stored, weights_only=True))
    assert loaded.blank == 3
    assert loaded.pieces == tokenizer.pieces
    assert loaded.encode("二号") == tokenizer.encode("二号")


def test_training_twice_gives_the_same_model():
    first, second = Tokenizer.train(TEXTS), Tokenizer.train(TEXTS)
    assert torch.equal(first.state_dict()["model"], second.state_dict()["model"])


def test_training_is_silent(capfd):
    Tokenizer.train(TEXTS)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Tokenizer.train(["ab"], blank=7), "`blank` must be in [-4, 3], but is 7."),
        (lambda: Tokenizer.train(["ab"], blank=-5), "`blank` must be in [-4, 3], but is -5."),
        (
            lambda: Tokenizer.train([" ", ""]),
            "`texts` must hold at least one text that is not empty, but has none.",
        ),
        (
            lambda: Tokenizer.train(["ab"], model_type="word"),
            "`model_type` must be one of char, bpe, unigram, but is 'word'.",
        ),
        (
            lambda: Tokenizer.train(["ab"], model_type="bpe"),
            "`vocab_size` must be at least 3 for model_type 'bpe', but is None.",
        ),
        (
            lambda: Tokenizer.train(["ab"], vocab_size=9),
            "`vocab_size` must be None for model_type 'char', whose size follows from the "
            "characters, but is 9.",
        ),
        (
            lambda: Tokenizer.train(["ab"], model_type="bpe", vocab_size=99),
            "`vocab_size` must fit the texts, but 99 does not: sentencepiece, which counts without "
            "blank, says 'Vocabulary size too high (98). Please set it to a value <= 4.'",
        ),
        (
            lambda: Tokenizer.train(["ab"]).decode([0, 9]),
            "`ids` must be in [0, 3], but is 9 at position 1.",
        ),
        (
            lambda: Tokenizer.train(["ab"]).id_to_piece(-1),
            "`index` must be in [0, 3], but is -1.",
        ),
        (
            lambda: Tokenizer(b"nonsense"),
            "`model_proto` must be a serialised sentencepiece model.",
        ),
        (
            lambda: Tokenizer.from_state_dict({"blank": 0}),
            "`state` must hold format, model and blank, but lacks format, model.",
        ),
        (
            lambda: Tokenizer.from_state_dict({"format": 2, "model": None, "blank": 0}),
            "`state` must have format 1, but has 2.",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()


@pytest.mark.parametrize("blank", [0, 3, -1])
@pytest.mark.parametrize(("model_type", "size"), [("char", None), ("bpe", 14), ("unigram", 8)])
def test_an_extended_tokenizer_knows_more_and_changes_nothing_else(model_type, size, blank):
    texts = ["甲乙丙甲乙", "丙乙甲乙甲", "甲乙甲乙丁", "丁丁甲乙"]
    old = Tokenizer.train(texts, blank=blank, model_type=model_type, vocab_size=size)
    new = old.extended("戊甲 戊x")
    assert new.pieces == [*old.pieces, "戊", "▁", "x"]
    assert (new.blank, new.unk) == (old.blank, old.unk)
    for text in texts:
        assert new.encode(text) == old.encode(text)
    size = old.vocab_size
    assert new.encode("戊 x") == [size, size + 1, size + 2]
    assert new.decode(new.encode("甲乙x 丁戊")) == "甲乙x 丁戊"
    again = Tokenizer.from_state_dict(new.state_dict())
    assert again.pieces == new.pieces
    assert new.extended("甲戊").pieces == new.pieces


def test_unknown_characters_are_listed_once_in_order():
    tokenizer = Tokenizer.train(["甲乙"])
    assert tokenizer.unknown_characters("甲丁乙x丁") == ["丁", "x"]
    assert tokenizer.unknown_characters("乙甲") == []
    with pytest.raises(ValueError) as caught:
        tokenizer.extended(["甲", "丙丁"])
    assert str(caught.value) == "`characters` must be single characters, but one is '丙丁'."


@pytest.mark.parametrize("blank", [0, 2, -1])
@pytest.mark.parametrize("mark", ["\u2585", "\x1f"])
def test_characters_that_sentencepiece_keeps_for_itself_lose_no_text(mark, blank):
    text = f"甲{mark}乙"
    tokenizer = Tokenizer.train([text, "丙"], blank=blank)
    assert {"甲", "乙", "丙", mark} < set(tokenizer.pieces)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.blank == blank % tokenizer.vocab_size


def test_marks_that_cannot_be_seen_are_no_text():
    for text in ("", " \u3000\t", "\u200b", "\u200e\u200f", "\ufeff \u2060", "\u3164", "\ufe0f"):
        assert not has_text(text)
    for text in ("甲", "\u200b甲", "!", "e\u0301"):
        assert has_text(text)
