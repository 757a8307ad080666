"""Byte-level BPE: the bundled vocabulary, a pretrained model's own, and text from tokens as they come.

``python -m explorer.engine.tokenizer --train assets/tokenizer.json`` makes the bundled one again.
"""

from __future__ import annotations

import argparse
import codecs
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import tokenizers
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from explorer.engine.errors import BadRequest
from explorer.engine.text import python_source
from explorer.models import MODELS

END_OF_TEXT = "<|endoftext|>"
TOKENIZER_LIMIT_BYTES = 64 * 2**20
"""No byte-level vocabulary comes near this; a larger file is not one."""


NO_TOKEN = "\N{REPLACEMENT CHARACTER}".encode()
"""What an id without a token shows as: a model with random weights may draw ids that its tokenizer has not."""


def _byte_alphabet() -> Mapping[str, int]:
    """The character that byte-level vocabularies write for a byte, to that byte.

    Printable Latin-1 characters stand for themselves, the other 68 bytes for the characters from U+0100 on.
    Source: bytes_to_unicode in the code published with GPT-2 (openai/gpt-2, src/encoder.py).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()


class Tokenizer:
    """A byte-level BPE. Through the bundled one any text comes back unchanged."""

    def __init__(self, backend: tokenizers.Tokenizer, *, end: str = END_OF_TEXT) -> None:
        """``end``: the token between documents.

        Raises:
            ValueError: it is not byte-level, or has no such token.
        """
        if not isinstance(backend.decoder, ByteLevelDecoder):
            raise ValueError("it is not a byte-level BPE, the kind that GPT-2 has")
        end_id = backend.token_to_id(end)
        if end_id is None:
            raise ValueError(f"it has no token {end}")
        # A tokenizer.json can ask for these, and both would change the text.
        backend.no_padding()
        backend.no_truncation()
        self._backend = backend
        self._bytes: dict[int, bytes] = {}
        self.end_id: int = end_id
        """The token that ends a document."""
        self.vocabulary: int = max(backend.get_vocab(with_added_tokens=True).values()) + 1
        """Every id is below this."""

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``; a literal ``<|endoftext|>`` in it becomes ``end_id``.

        Raises:
            BadRequest: the text has half a surrogate pair, which no encoding of Unicode has.
        """
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """``encode`` of each text, on all cores."""
        for text in texts:
            # The backend would raise a TypeError that names no text.
            if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
                raise BadRequest("The text", "it has half a surrogate pair, which is no character", "Remove it.")
        return [encoding.ids for encoding in self._backend.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``, end tokens included; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", errors="replace")

    def token_bytes(self, id: int) -> bytes:
        """The bytes that token ``id`` stands for; those of U+FFFD where there is no such token."""
        known = self._bytes.get(id)
        if known is None:
            token = self._backend.id_to_token(id)
            if token is None:
                known = NO_TOKEN
            elif all(character in _BYTE_OF for character in token):
                known = bytes(_BYTE_OF[character] for character in token)
            else:  # an added token is written as it is, as in tokenizers' own decoder
                known = token.encode()
            self._bytes[id] = known
        return known

    def to_json(self) -> str:
        """All that decides how text becomes ids, for keys of caches."""
        return self._backend.to_str()


class StreamDecoder:
    """Text from ids as they come, in pieces that are whole: what is shown never has to be taken back.

    A push costs the same however much came before. The pieces joined, with ``finish`` last, equal
    ``tokenizer.decode`` of all the ids.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, ids: Sequence[int]) -> str:
        """The text that ``ids`` complete; the bytes of a character still unfinished are kept back."""
        return self._utf8.decode(b"".join(map(self._tokenizer.token_bytes, ids)))

    def finish(self) -> str:
        """U+FFFD where the last character was left unfinished, else nothing; begins anew."""
        rest = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return rest


def bundled() -> Tokenizer:
    """The project's own tokenizer, of ``MODELS["mini"].vocabulary`` tokens."""
    resource = files("explorer.assets").joinpath("tokenizer.json")
    return Tokenizer(tokenizers.Tokenizer.from_str(resource.read_text(encoding="utf-8")))


def for_model(folder: Path) -> Tokenizer:
    """The tokenizer that lies beside a pretrained model: tokenizer.json, or vocab.json with merges.txt.

    Raises:
        BadRequest: there is none, or it is not a byte-level BPE.
    """
    whole, vocabulary, merges = (folder / name for name in ("tokenizer.json", "vocab.json", "merges.txt"))
    remedy = "Copy the tokenizer files of the model that it was trained from beside it."
    if whole.is_file():
        path = whole
    elif vocabulary.is_file() and merges.is_file():
        path = vocabulary
    else:
        raise BadRequest(f"Model {folder}", "it has no tokenizer.json, nor vocab.json with merges.txt", remedy)
    what = f"Tokenizer {path}"
    if path.stat().st_size > TOKENIZER_LIMIT_BYTES:
        raise BadRequest(what, f"it has more than {TOKENIZER_LIMIT_BYTES >> 20} MiB", remedy)
    try:
        if path is whole:
            backend = tokenizers.Tokenizer.from_file(str(whole))
        else:
            backend = tokenizers.Tokenizer(BPE.from_file(str(vocabulary), str(merges)))
            backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
            backend.decoder = ByteLevelDecoder()
            backend.add_special_tokens([END_OF_TEXT])
        return Tokenizer(backend, end=_end_token(folder))
    except Exception as error:  # tokenizers raises plain Exception for a file that it cannot parse
        raise BadRequest(what, str(error), remedy) from error


def _end_token(folder: Path) -> str:
    """What tokenizer_config.json calls the end of text; GPT-2's own where it says nothing."""
    try:
        content = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        token = content.get("eos_token")
    except (OSError, ValueError, AttributeError):
        return END_OF_TEXT
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else END_OF_TEXT


def train(documents: Sequence[str], vocabulary: int) -> Tokenizer:
    """A tokenizer of ``vocabulary`` tokens learned from ``documents``; the same ones give the same one.

    <|endoftext|> is id 0, the 256 bytes come next, then the merges in the order in which they were learned.
    """
    backend = tokenizers.Tokenizer(BPE())
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(_BYTE_OF),
        show_progress=False,
    )
    backend.train_from_iterator(documents, trainer)
    return Tokenizer(backend)


def main(argv: Sequence[str] | None = None) -> None:
    """Train the bundled tokenizer on the running Python's documentation and library and write it."""
    parser = argparse.ArgumentParser(prog="python -m explorer.engine.tokenizer", description=main.__doc__)
    parser.add_argument("--train", type=Path, required=True, metavar="FILE", help="where to write tokenizer.json")
    path: Path = parser.parse_args(argv).train
    trained = train(list(python_source().documents()), MODELS["mini"].vocabulary)
    path.write_text(trained.to_json() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
