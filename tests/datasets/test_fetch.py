"""fetch_conll2000 and fetch_conll2002 against a server of our own: right, wrong, missing, gone."""

import functools
import gzip
import hashlib
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sklseq.datasets import _fetch, fetch_conll2000, fetch_conll2002, read_conll

pytest.importorskip("pooch")

TEXT = "".join(f"w{k} N {'B-NP' if k % 3 else 'O'}\n" + "\n" * (k % 5 == 4) for k in range(40))
DATA = TEXT.encode()


class Server:
    """Serves ``files`` (path to bytes, or to a list of answers, one a request)."""

    def __init__(self):
        self.files, self.asked = {}, []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.asked.append(self.path)
                data = server.files.get(self.path)
                if isinstance(data, list):
                    data = data.pop(0)
                self.send_response(404 if data is None else 200)
                self.send_header("Content-Length", str(len(data or b"")))
                self.end_headers()
                self.wfile.write(data or b"")

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("SKLSEQ_CACHE", raising=False)
    monkeypatch.delenv("SKLSEQ_MIRROR", raising=False)
    sha256 = hashlib.sha256(DATA).hexdigest()
    for name, corpus in _fetch.CORPORA.items():
        small = corpus._replace(n_bytes=len(DATA), sha256=sha256)
        monkeypatch.setitem(_fetch.CORPORA, name, small)
    server = Server()
    yield server
    server.close()


@pytest.fixture
def fetch(server, tmp_path):
    return functools.partial(fetch_conll2000, data_home=tmp_path, base_url=server.url, n_retries=0)


def expected(tmp_path):
    path = tmp_path / "expected"
    path.write_bytes(DATA)
    return read_conll(path, columns=["w", "pos"])


@pytest.mark.parametrize("zipped", [False, True])
def test_the_text_is_fetched_once(server, fetch, tmp_path, zipped):
    server.files = {"/train.txt.gz": gzip.compress(DATA)} if zipped else {"/train.txt": DATA}
    assert fetch() == expected(tmp_path)
    assert (tmp_path / "conll2000" / "train.txt").read_bytes() == DATA
    n_asked = len(server.asked)
    assert fetch() == fetch(download_if_missing=False) == expected(tmp_path)
    assert len(server.asked) == n_asked
    assert [path.name for path in (tmp_path / "conll2000").iterdir()] == ["train.txt"]


@pytest.mark.parametrize("language", ["esp", "ned"])
@pytest.mark.parametrize("subset", ["train", "testa", "testb"])
def test_conll2002(server, tmp_path, subset, language):
    server.files = {f"/{language}.{subset}.gz": gzip.compress(DATA)}
    X, _ = fetch_conll2002(
        subset=subset, language=language, data_home=tmp_path, base_url=f"{server.url}/"
    )
    assert X[0]["w"][0] == "w0"
    assert (tmp_path / "conll2002" / f"{language}.{subset}").exists()


@pytest.mark.parametrize(
    "answer",
    [DATA + b"\n", gzip.compress(DATA + b"\n"), b"<html>Sign in</html>", b""],
    ids=["text", "gzip", "page", "nothing"],
)
def test_another_file_is_refused(server, fetch, tmp_path, answer):
    server.files = {"/train.txt.gz": answer}
    with pytest.raises(OSError, match=r"another file, .* with the SHA-256 checksum [0-9a-f]{64}"):
        fetch()
    assert not (tmp_path / "conll2000" / "train.txt").exists()
    assert list((tmp_path / "conll2000").iterdir()) == []


def test_a_zip_bomb_is_not_unpacked(server, fetch):
    server.files = {"/train.txt.gz": gzip.compress(bytes(10**7))}
    with pytest.raises(OSError, match="another file, its text is longer"):
        fetch()


def test_a_cut_gzip_file(server, fetch):
    server.files = {"/train.txt.gz": gzip.compress(DATA)[:60]}
    with pytest.raises(OSError, match=r"train\.txt\.gz: .*end-of-stream"):
        fetch()


def test_missing_on_the_server(server, fetch, tmp_path):
    with pytest.raises(OSError, match=r"train\.txt: answers with status 404\.") as error:
        fetch()
    message = str(error.value)
    for part in (
        "base_url=",
        "SKLSEQ_MIRROR",
        str(tmp_path / "conll2000" / "train.txt"),
        "SHA-256",
    ):
        assert part in message
    assert server.asked == ["/train.txt.gz", "/train.txt"]


def test_no_server(fetch, server):
    gone = Server()
    gone.close()
    with pytest.raises(OSError, match=r"Could not fetch conll2000/train.txt\..*cannot be reached"):
        fetch(base_url=gone.url)


def test_it_tries_again(server, fetch, tmp_path):
    server.files = {"/train.txt": [None, DATA]}
    assert fetch(n_retries=1) == expected(tmp_path)
    assert len(server.asked) == 4


def test_a_damaged_cache_is_fetched_again(server, fetch, tmp_path):
    path = tmp_path / "conll2000" / "train.txt"
    path.parent.mkdir()
    path.write_bytes(DATA[:-1])
    with pytest.raises(OSError, match="is damaged in the cache"):
        fetch(download_if_missing=False)
    server.files = {"/train.txt": DATA}
    assert fetch() == expected(tmp_path)


def test_without_a_cache_and_download(fetch):
    with pytest.raises(OSError, match=r"conll2000/test.txt is not in the cache .*SHA-256 [0-9a-f]"):
        fetch(subset="test", download_if_missing=False)


def test_the_environment_names_mirror_and_cache(server, tmp_path, monkeypatch):
    monkeypatch.setenv("SKLSEQ_MIRROR", f"{server.url}/mirror/")
    monkeypatch.setenv("SKLSEQ_CACHE", str(tmp_path / "cache"))
    server.files = {"/mirror/conll2000/test.txt.gz": gzip.compress(DATA)}
    assert fetch_conll2000(subset="test") == expected(tmp_path)
    assert (tmp_path / "cache" / "conll2000" / "test.txt").exists()


def test_public_places_are_tried_in_turn(server, fetch, tmp_path, monkeypatch):
    places = tuple(f"{server.url}/{name}" for name in ("gone/train.txt.gz", "here/train.txt"))
    monkeypatch.setitem(_fetch.ADDRESSES, "conll2000", places)
    server.files = {"/gone/train.txt.gz": b"moved", "/here/train.txt": DATA}
    assert fetch(base_url=None) == expected(tmp_path)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fetch_conll2000(subset="all"), r"subset must be one of \('train', 'test'\)"),
        (lambda: fetch_conll2002(subset="test"), r"one of \('train', 'testa', 'testb'\); got"),
        (lambda: fetch_conll2002(language="deu"), r"language must be one of \('esp', 'ned'\)"),
    ],
)
def test_bad_choices(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_pooch_is_needed_only_to_download():
    code = (
        "import sys; sys.modules['pooch'] = None; from sklseq.datasets import fetch_conll2000\n"
        "try: fetch_conll2000()\nexcept ImportError as error: print(error)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "SKLSEQ_CACHE"}
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert "pip install 'sklseq[data]'" in out.stdout, out.stderr


def test_checksums_are_those_of_the_copies_at_hand():
    folder = os.environ.get("SKLSEQ_DATA")
    if not folder:
        pytest.skip("SKLSEQ_DATA names no folder")
    at_hand = 0
    for corpus in _fetch.CORPORA.values():
        path = Path(folder) / f"{corpus}.gz"
        if path.exists():
            text = gzip.decompress(path.read_bytes())
            assert (len(text), hashlib.sha256(text).hexdigest()) == corpus[2:]
            at_hand += 1
    assert at_hand
