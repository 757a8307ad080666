"""Where training text comes from, and what is refused."""

import os
import pydoc_data.topics
import sys
import sysconfig
from pathlib import Path

import pytest

from explorer.engine import text
from explorer.engine.errors import BadRequest


def text_source(name):
    return text.text_source(name, download=False, progress=lambda *_: None, cancelled=lambda: False)


def test_that_python_text_is_documentation_then_library_without_tests():
    source = text_source("python")
    documents = list(source.documents())
    assert documents[0] == pydoc_data.topics.topics[min(pydoc_data.topics.topics)]
    library = Path(sysconfig.get_path("stdlib"))
    assert (library / "argparse.py").read_text(encoding="utf-8") in documents
    assert not any("test" in path.relative_to(library).parts for path in source.files)
    assert not any("site-packages" in path.parts[len(library.parts) :] for path in source.files)
    assert 5_000_000 < sum(len(document.encode()) for document in documents) <= text.PYTHON_TEXT_LIMIT_BYTES


def test_that_a_users_file_is_one_document(tmp_path):
    path = tmp_path / "größe.txt"
    path.write_bytes(b"\xef\xbb\xbfline\r\n\xe6\x97\xa5\n")
    assert list(text_source(str(path)).documents()) == ["line\r\n日\n"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "no such file"),
        (b"", "empty"),
        (b" \n\t", "empty"),
        (b"ab\0cd", "zero byte at offset 2"),
        ("text".encode("utf-16"), "binary or UTF-16"),
        (b"caf\xe9 au lait", "not UTF-8 .byte 0xe9 at offset 3"),
    ],
)
def test_that_a_bad_file_is_refused_with_its_reason(tmp_path, content, why):
    path = tmp_path / "bad.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadRequest, match=why) as caught:
        text_source(str(path))
    assert str(path) in caught.value.what
    assert caught.value.remedy


@pytest.mark.skipif(sys.platform == "win32", reason="has no such devices")
def test_that_a_pipe_and_a_device_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(BadRequest, match="it is a pipe or a device"):
            text_source(str(path))
    with pytest.raises(BadRequest, match=r"cannot be read \(File name too long\)"):
        text_source("a" * 5000)


def test_that_a_folder_is_refused(tmp_path):
    with pytest.raises(BadRequest, match="it is a folder"):
        text_source(str(tmp_path))
