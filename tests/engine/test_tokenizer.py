"""The bundled tokenizer, a model's own, and text from tokens as they come."""

import json

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.engine import tokenizer
from explorer.engine.errors import BadRequest
from explorer.engine.tokenizer import StreamDecoder
from explorer.models import MODELS

BUNDLED = tokenizer.bundled()


def test_that_the_bundled_vocabulary_is_the_one_of_mini():
    assert BUNDLED.vocabulary == MODELS["mini"].vocabulary == 8192
    assert BUNDLED.encode("<|endoftext|>") == [BUNDLED.end_id] == [0]


@given(st.text())
def test_that_any_text_comes_back_unchanged(text):
    assert BUNDLED.decode(BUNDLED.encode(text)) == text


def test_that_python_source_takes_less_than_a_token_for_three_bytes():
    source = (
        "def area(width, height):\n    if width < 0:\n        raise ValueError('width')\n    return width * height\n"
    )
    assert len(BUNDLED.encode(source)) < len(source) / 3


def test_that_half_a_surrogate_pair_is_refused():
    with pytest.raises(BadRequest, match="surrogate"):
        BUNDLED.encode("a\ud800b")


@settings(max_examples=300)
@given(st.lists(st.integers(0, 8191)), st.data())
def test_that_streamed_pieces_join_to_the_text_of_all_ids(ids, data):
    # Random ids make invalid and unfinished UTF-8 at every place; tokenizers' own decoder is the reference.
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=8)))
    stream = StreamDecoder(BUNDLED)
    pieces = [stream.push(ids[a:b]) for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
    expected = BUNDLED._backend.decode(ids, skip_special_tokens=False)
    assert "".join([*pieces, stream.finish()]) == expected == BUNDLED.decode(ids)


def test_that_a_character_is_streamed_when_its_last_byte_has_come():
    byte_ids = [BUNDLED._backend.token_to_id(c) for c in ("ð", "Ł", "ĺ", "Ģ")]  # F0 9F 98 80
    stream = StreamDecoder(BUNDLED)
    assert [stream.push([id]) for id in byte_ids] == ["", "", "", "😀"]


def test_that_an_id_without_a_token_shows_as_replacement_character():
    assert BUNDLED.decode([50000]) == "�"


def test_that_training_twice_gives_the_same_tokenizer():
    documents = ["def f(x):\n    return x\n" * 20, "class Größe:\n    pass\n" * 20]
    first, second = (tokenizer.train(documents, 280) for _ in range(2))
    assert first.to_json() == second.to_json()
    assert first.vocabulary == 280
    assert first.encode("return") != [first._backend.token_to_id(c) for c in "return"]


@pytest.fixture
def pretrained_folder(tmp_path):
    """A tokenizer as published with GPT-2: vocab.json and merges.txt."""
    trained = json.loads(BUNDLED.to_json())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(trained["vocab"]), encoding="utf-8")
    merges = "\n".join(" ".join(pair) for pair in trained["merges"])
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + merges, encoding="utf-8")
    return tmp_path


TEXT = "def größe(x):\n\n    return  x != '日本'  # 😀\t<|endoftext|>Next's"


def test_that_vocab_and_merges_are_read_as_transformers_reads_them(pretrained_folder):
    reference = transformers.GPT2TokenizerFast.from_pretrained(pretrained_folder)
    loaded = tokenizer.for_model(pretrained_folder)
    assert loaded.encode(TEXT) == reference.encode(TEXT)
    assert loaded.end_id == reference.eos_token_id


def test_that_a_saved_tokenizer_json_is_read_as_transformers_reads_it(pretrained_folder, tmp_path_factory):
    reference = transformers.GPT2TokenizerFast.from_pretrained(pretrained_folder)
    folder = tmp_path_factory.mktemp("saved")
    reference.save_pretrained(folder)
    loaded = tokenizer.for_model(folder)
    assert loaded.encode(TEXT) == reference.encode(TEXT)
    assert loaded.decode(loaded.encode(TEXT)) == TEXT


def test_that_padding_and_truncation_in_a_file_are_turned_off(tmp_path):
    values = json.loads(BUNDLED.to_json())
    values["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    (tmp_path / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")
    assert tokenizer.for_model(tmp_path).encode(TEXT) == BUNDLED.encode(TEXT)


def _write(folder, content):
    (folder / "tokenizer.json").write_text(content, encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda folder: None, "no tokenizer.json"),
        (lambda folder: _write(folder, "{"), "EOF"),
        (
            lambda folder: _write(folder, BUNDLED.to_json().replace('"ByteLevel"', '"Fuse"')),
            "byte-level|expected|variant",
        ),
        (
            lambda folder: _write(folder, BUNDLED.to_json().replace("<|endoftext|>", "<|other|>")),
            "no token <|endoftext|>",
        ),
    ],
)
def test_that_a_wrong_tokenizer_is_refused_with_its_reason(tmp_path, spoil, why):
    spoil(tmp_path)
    with pytest.raises(BadRequest, match=why) as caught:
        tokenizer.for_model(tmp_path)
    assert str(tmp_path) in caught.value.what
    assert caught.value.remedy


def test_that_a_tokenizer_of_another_kind_is_refused(tmp_path):
    values = json.loads(BUNDLED.to_json())
    values["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    (tmp_path / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(BadRequest, match="not a byte-level"):
        tokenizer.for_model(tmp_path)
