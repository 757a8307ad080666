"""Text is tokenized once, stored, and read again only when it has changed."""

import os
from pathlib import Path

import numpy as np
import pytest
import tokenizers

from explorer.config import RunConfig
from explorer.engine import token_cache
from explorer.engine.cache import cache_dir, write_atomically
from explorer.engine.data import token_stream
from explorer.engine.errors import BadRequest, Cancelled
from explorer.engine.tokenizer import Tokenizer, bundled, train

BUNDLED = bundled()
TEXT = "def größe(x):\n    return x\n\n\nclass 日本:\n    pass\n" * 40


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gpt2-explorer" / "tokens"


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def stream(path, tokenizer=BUNDLED, seq=64, report=None, cancelled=lambda: False):
    lines = [] if report is None else report
    config = RunConfig(text=str(path), seq=seq)
    return token_stream(config, tokenizer, download=False, progress=lambda *a: lines.append(a), cancelled=cancelled)


def test_that_the_stream_is_the_encoded_text_and_an_end_token(text_file):
    tokens = stream(text_file)
    # The reference is the tokenizers package itself, on the whole text at once.
    expected = tokenizers.Tokenizer.from_str(BUNDLED.to_json()).encode(TEXT).ids
    assert tokens.dtype == np.uint16
    assert tokens.tolist() == [*expected, BUNDLED.end_id]
    assert isinstance(tokens, np.memmap)


def test_that_an_unchanged_text_is_not_tokenized_again(text_file):
    first, report = stream(text_file), []
    assert stream(text_file, report=report).tolist() == first.tolist()
    assert report == []


def test_that_a_changed_text_is_tokenized_anew(text_file):
    stream(text_file)
    text_file.write_text("x = 1\n" + TEXT, encoding="utf-8")
    assert BUNDLED.decode(stream(text_file).tolist()[:-1]) == "x = 1\n" + TEXT


def test_that_the_same_text_elsewhere_uses_the_same_tokens(text_file, tmp_path, cache):
    stream(text_file)
    copy = tmp_path / "copy.txt"
    copy.write_text(TEXT, encoding="utf-8")
    report = []
    stream(copy, report=report)
    assert report == []
    assert len(list(cache.glob("*.npy"))) == 1


def test_that_another_tokenizer_has_tokens_of_its_own(text_file):
    # The small one first: all its ids are ids of the other one too.
    small = train([TEXT], 280)
    for tokenizer in (small, BUNDLED):
        tokens = stream(text_file, tokenizer=tokenizer)
        assert tokenizer.decode(tokens[:-1].tolist()) == TEXT


def test_that_a_damaged_cache_is_made_anew(text_file, cache):
    expected = stream(text_file).tolist()
    (stored,) = cache.glob("*.npy")
    stored.write_bytes(stored.read_bytes()[:-10])
    assert stream(text_file).tolist() == expected
    np.save(stored, np.full(100, 9000, np.uint16))  # ids that the tokenizer does not have
    assert stream(text_file).tolist() == expected
    assert stream(text_file, report=(report := [])).tolist() == expected
    assert report == []


def test_that_an_unwritable_cache_is_said_and_tokens_stay_in_memory(text_file, tmp_path, monkeypatch):
    # A file where the folder should be: refused for every user, root included.
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    report = []
    tokens = stream(text_file, report=report)
    assert BUNDLED.decode(tokens[:-1].tolist()) == TEXT
    assert any("cannot be written" in activity and "memory" in activity for activity, *_ in report)


def test_that_a_cancelled_tokenization_leaves_nothing(text_file, cache):
    with pytest.raises(Cancelled):
        stream(text_file, cancelled=lambda: True)
    assert not cache.exists()


def test_that_a_text_too_short_for_one_sequence_is_refused(tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("a b c", encoding="utf-8")
    with pytest.raises(BadRequest, match="only 4 tokens"):
        stream(short)


def test_that_cutting_into_pieces_changes_no_token(monkeypatch):
    text = "a  b\n\n\n  c\td 日本 word's 12345   \n\n   x\u00a0y\u3000z \x1c q\r\n" * 50
    whole = [*BUNDLED.encode(text), 0]
    monkeypatch.setattr(token_cache, "PIECE_CHARACTERS", 7)
    monkeypatch.setattr(token_cache, "BATCH_CHARACTERS", 100)
    report = []
    pieces = token_cache.tokenize([text, "", text], BUNDLED, lambda *a: report.append(a), lambda: False)
    assert pieces.tolist() == [*whole, 0, *whole]
    assert report[-1][1] == report[-1][2] == pytest.approx(2 * len(text) / 1e6)
    assert len(report) > 10


def test_that_a_vocabulary_over_16_bits_is_stored_in_32():
    backend = tokenizers.Tokenizer.from_str(BUNDLED.to_json())
    backend.add_tokens([f"<{n}>" for n in range(60000)])
    tokens = token_cache.tokenize(["<59999>"], Tokenizer(backend), lambda *a: None, lambda: False)
    assert tokens.dtype == np.uint32
    assert tokens.tolist() == [8192 + 59999, 0]


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/gpt2-explorer"),
        ("linux", {"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/gpt2-explorer"),
        ("darwin", {"HOME": "/h"}, "/h/Library/Caches/gpt2-explorer"),
        ("win32", {"LOCALAPPDATA": "/l"}, "/l/gpt2-explorer"),
    ],
)
def test_that_the_cache_lies_where_the_platform_keeps_caches(monkeypatch, platform, environment, expected):
    monkeypatch.setattr("sys.platform", platform)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_dir() == Path(expected)


def test_that_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fail(file):
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert os.listdir(tmp_path) == ["file"]
    assert path.read_text() == "old"
