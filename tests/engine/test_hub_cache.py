"""Pretrained weights: from the local cache, or downloaded when asked for; a server on this machine is the Hub."""

import contextlib
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from explorer.engine import hub, text, tokenizer
from explorer.engine.errors import BadRequest, Cancelled

REPOSITORY = "openai-community/gpt2"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
STORAGE = "models--openai-community--gpt2"


@pytest.fixture
def published(tiny_model, tmp_path):
    """The files of a tiny model, as published; the weights larger than one chunk of a download (10 MB)."""
    folder = tmp_path / "published"
    shutil.copytree(tiny_model, folder)
    (folder / "tokenizer.json").write_text(tokenizer.bundled().to_json(), encoding="utf-8")
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"\0" * 25_000_000)
    return folder


@pytest.fixture
def server(published):
    """Serves the published files as the Hub does; yields its address and the paths asked for."""
    asked = []

    going_on = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self, with_content):
            asked.append((self.command, self.path))
            path = published / self.path.rpartition("/")[2]
            if f"{REPOSITORY}/resolve/" not in self.path or not path.is_file():
                self.send_error(404)
                return
            content = path.read_bytes()
            self.send_response(200)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if with_content:
                with contextlib.suppress(OSError):  # the reader leaves when it is cancelled
                    if (published / "stalls").exists():
                        self.wfile.write(content[:100])
                        going_on.wait(60)
                    self.wfile.write(content)

        def do_HEAD(self):
            self.answer(False)

        def do_GET(self):
            self.answer(True)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", asked
        going_on.set()
        running.shutdown()
        thread.join()


SCRIPT = """
import json, sys, time
time.sleep = lambda _: None  # huggingface_hub's pauses between attempts, 24 s in all
from explorer.engine import hub
from explorer.engine.errors import BadRequest, Cancelled
report, stop_at = [], float(sys.argv[1])
try:
    outcome = str(hub.snapshot("gpt2", download=sys.argv[2] == "download",
        progress=lambda *a: report.append(a), cancelled=lambda: bool(report) and (report[-1][1] or 0) > stop_at))
except (BadRequest, Cancelled) as error:
    outcome = f"{type(error).__name__} {error}"
sys.stdout.write(json.dumps([outcome, report]))
"""


def snapshot(home, endpoint, *, download=True, stop_at_mib=1e9, offline=False):
    """``hub.snapshot`` in a process of its own: the Hub's address and cache are read once, when it is imported."""
    environment = {**os.environ, "HF_HOME": str(home), "HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": str(int(offline))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(stop_at_mib), "download" if download else "local"],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def files_under(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_that_a_download_fills_the_cache_with_progress_and_is_not_repeated(server, published, tmp_path):
    endpoint, asked = server
    outcome, report = snapshot(tmp_path / "home", endpoint)
    folder = Path(outcome)
    assert folder == tmp_path / "home" / "hub" / STORAGE / "snapshots" / COMMIT
    for name in hub.FILES:
        assert (folder / name).read_bytes() == (published / name).read_bytes()
    weights = [entry for entry in report if "model.safetensors" in entry[0]]
    assert len(weights) >= 3
    size_mib = (published / "model.safetensors").stat().st_size / 2**20
    assert weights[-1][1:] == [pytest.approx(size_mib), pytest.approx(size_mib), "MiB"]
    asked.clear()
    assert snapshot(tmp_path / "home", endpoint)[0] == outcome
    assert snapshot(tmp_path / "home", endpoint, download=False)[0] == outcome
    assert asked == []


def test_that_a_cancelled_download_leaves_no_weights_and_can_be_done_again(server, tmp_path):
    endpoint, _ = server
    outcome, _ = snapshot(tmp_path / "home", endpoint, stop_at_mib=5)
    assert outcome.startswith("Cancelled")
    assert not any(name.endswith("model.safetensors") for name in files_under(tmp_path / "home"))
    assert snapshot(tmp_path / "home", endpoint, download=False)[0].startswith("BadRequest")
    assert snapshot(tmp_path / "home", endpoint)[0].endswith(COMMIT)


STALLED = """
import time
from explorer.engine import hub
from explorer.engine.errors import Cancelled
stop_at_s = time.monotonic() + 1.0
try:
    hub.snapshot("gpt2", download=True, progress=lambda *_: None, cancelled=lambda: time.monotonic() > stop_at_s)
except Cancelled:
    print(time.monotonic() - stop_at_s)
"""


def test_that_a_stop_is_heard_while_the_server_sends_nothing(server, published, tmp_path):
    (published / "stalls").touch()
    home = tmp_path / "home"
    environment = {**os.environ, "HF_HOME": str(home), "HF_ENDPOINT": server[0], "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-c", STALLED]
    done = subprocess.run(command, env=environment, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 0 < float(done.stdout) < 2.0
    assert not any(name.endswith(".json") for name in files_under(home))


def test_that_nothing_is_fetched_unless_asked_for(server, tmp_path):
    endpoint, asked = server
    outcome, _ = snapshot(tmp_path / "home", endpoint, download=False)
    assert "is not in the local Hugging Face cache" in outcome
    assert "--download" in outcome
    assert asked == []
    assert not (tmp_path / "home").exists() or files_under(tmp_path / "home") == []


@pytest.mark.parametrize("offline", [False, True], ids=["no-answer", "offline-mode"])
def test_that_without_a_network_the_error_is_clear_and_nothing_changes(tmp_path, offline):
    # Port 9 (discard) of this machine: nobody listens.
    outcome, _ = snapshot(tmp_path / "home", "http://127.0.0.1:9", offline=offline)
    assert outcome.startswith(
        "BadRequest Pretrained gpt2: config.json of openai-community/gpt2 could not be downloaded"
    )
    assert "Check the connection" in outcome
    assert not (tmp_path / "home").exists() or files_under(tmp_path / "home") == []


def test_that_a_file_missing_at_the_hub_is_said(server, published, tmp_path):
    (published / "tokenizer.json").unlink()
    outcome, _ = snapshot(tmp_path / "home", server[0])
    assert outcome.startswith("BadRequest")
    assert "tokenizer.json" in outcome


def test_that_mini_is_not_looked_for_at_the_hub():
    with pytest.raises(BadRequest, match=r"not published.*bundled"):
        hub.snapshot("mini", download=True, progress=lambda *_: None, cancelled=lambda: False)


def test_that_a_stop_before_the_download_is_heard(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *_, **__: None)
    with pytest.raises(Cancelled):
        hub.snapshot("gpt2", download=True, progress=lambda *_: None, cancelled=lambda: True)


def wikitext(**settings):
    return text.text_source("wikitext-2", **{"download": False, "progress": print, "cancelled": bool, **settings})


def test_that_wikitext_without_its_package_is_refused_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "pyarrow.parquet", raising=False)
    with pytest.raises(BadRequest, match=r"datasets is not installed.*\[wikitext\]"):
        wikitext()


def test_that_wikitext_is_read_from_the_cache_without_its_empty_rows(tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.file_download.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(BadRequest, match="not in the local Hugging Face cache"):
        wikitext()
    storage = tmp_path / "datasets--Salesforce--wikitext"
    path = storage / "snapshots" / COMMIT / "wikitext-2-raw-v1" / "train-00000-of-00001.parquet"
    path.parent.mkdir(parents=True)
    (storage / "refs").mkdir()
    (storage / "refs" / "main").write_text(COMMIT)
    parquet.write_table(pyarrow.table({"text": ["", " = Title = \n", " \n", "A line .\n", None]}), path)
    assert list(wikitext().documents()) == [" = Title = \nA line .\n"]
    path.write_bytes(b"not parquet")
    with pytest.raises(BadRequest, match="damaged"):
        wikitext()
