"""Files that are there whole or not at all, on the real file system."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from explorer.results.atomic import check_new_folder, check_target, new_folder, replaced


def write(path: Path, content: bytes = b"new") -> None:
    with replaced(path) as file:
        file.write(content)


def test_that_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path):
    path = tmp_path / "out.csv"
    path.write_bytes(b"old")
    path.chmod(0o640)
    write(path)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["out.csv"]


def test_that_who_has_the_old_file_open_keeps_it_whole(tmp_path: Path):
    path = tmp_path / "out.csv"
    path.write_bytes(b"old " * 10_000)
    with path.open("rb") as elsewhere:
        assert elsewhere.read(4) == b"old "
        write(path)
        assert elsewhere.read() == b"old " * 9_999
    assert path.read_bytes() == b"new"


def test_that_a_new_file_has_the_rights_that_the_umask_gives(tmp_path: Path):
    write(tmp_path / "out.csv")
    (tmp_path / "plain").touch()
    assert (tmp_path / "out.csv").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_that_an_error_while_writing_leaves_the_old_file_and_no_other(tmp_path: Path):
    path = tmp_path / "out.csv"
    path.write_bytes(b"old")
    with pytest.raises(KeyError), replaced(path) as file:
        file.write(b"half")
        raise KeyError
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out.csv"]


def test_that_a_full_disk_is_told_and_leaves_the_old_file(tmp_path: Path):
    path = tmp_path / "out.csv"
    path.write_bytes(b"old")
    # A limit on the size of files makes the kernel refuse the write, in a process of its own.
    code = (
        "import resource, signal, sys; from pathlib import Path; from explorer.results.atomic import replaced\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "with replaced(Path(sys.argv[1])) as file: file.write(b'x' * 5000)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert f"RuntimeError: {path} could not be written: File too large" in done.stderr
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out.csv"]


def test_that_no_room_on_the_disk_is_told_in_words(tmp_path: Path):
    with (
        pytest.raises(RuntimeError, match=r"out.csv could not be written: the disk is full"),
        replaced(tmp_path / "out.csv"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert os.listdir(tmp_path) == []


def test_that_a_symbolic_link_is_followed_and_stays(tmp_path: Path):
    (tmp_path / "real.csv").write_bytes(b"old")
    (tmp_path / "link.csv").symlink_to("real.csv")
    write(tmp_path / "link.csv")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_bytes() == b"new"


def test_that_a_pipe_is_written_to_and_not_replaced(tmp_path: Path):
    reading, writing = os.pipe()
    write(Path(f"/proc/self/fd/{writing}"))
    os.close(writing)
    with os.fdopen(reading, "rb") as end:
        assert end.read() == b"new"


@pytest.mark.parametrize("refuse", [check_target, write])
def test_that_a_folder_or_a_missing_folder_is_refused_in_words(tmp_path: Path, refuse):
    with pytest.raises(ValueError, match=f"{tmp_path} is a folder; give a file name"):
        refuse(tmp_path)
    with pytest.raises(ValueError, match="nowhere is not there"):
        refuse(tmp_path / "nowhere" / "out.csv")
    with pytest.raises(ValueError, match=r"plain is not a folder|plain is not there"):
        (tmp_path / "plain").touch()
        refuse(tmp_path / "plain" / "out.csv")


@pytest.mark.parametrize("refuse", [check_target, write, check_new_folder])
@pytest.mark.parametrize("name", ["x" * 256, "nul\0"])
def test_that_what_cannot_be_a_name_is_refused_in_words(tmp_path: Path, name: str, refuse):
    with pytest.raises(ValueError, match="cannot be a file's name"):
        refuse(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_that_a_folder_closed_to_us_is_refused_in_words(tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(ValueError, match="no permission to write"):
        write(tmp_path / "out.csv")
    tmp_path.chmod(0o700)


def test_that_a_new_folder_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "model"
    with pytest.raises(RuntimeError, match="the disk is full"), new_folder(target) as made:
        (made / "a").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(KeyboardInterrupt), new_folder(target) as made:
        (made / "a").write_text("half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with new_folder(target) as made:
        (made / "a").write_text("whole")
        assert not target.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (target / "a").read_text() == "whole"


def test_that_a_new_folder_takes_the_place_of_an_empty_one_and_of_nothing_else(tmp_path: Path) -> None:
    empty, full, file = tmp_path / "empty", tmp_path / "full", tmp_path / "file"
    empty.mkdir()
    full.mkdir()
    (full / "kept").write_text("kept")
    file.write_text("kept")
    with new_folder(empty) as made:
        (made / "a").write_text("new")
    assert (empty / "a").read_text() == "new"
    for path, words in ((full, "not empty"), (file, "no folder"), (tmp_path / "none" / "model", "is not there")):
        with pytest.raises(ValueError, match=words), new_folder(path):
            raise AssertionError("was opened")
    assert (full / "kept").read_text() == file.read_text() == "kept"
