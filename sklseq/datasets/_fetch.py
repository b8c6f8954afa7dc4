"""Corpora of shared tasks, downloaded once, verified and cached.

    name ── cache ── hit ─▶ read_conll
              └─ miss ── each address in turn ── unzip ── SHA-256 of the text ─▶ cache

The checksum is that of the text, not of its compressed form: a mirror may have compressed it again.
"""

import gzip
import hashlib
import io
import os
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from sklseq._lib.checks import check_choice, check_number

from ._conll import Columns, read_conll

SECONDS = 30  # time limit for an answer
_MIRROR = "https://raw.githubusercontent.com/teropa/nlp/master/resources/corpora/{0}/{1}"
ADDRESSES = {
    "conll2000": ("https://www.clips.uantwerpen.be/conll2000/chunking/{1}.gz", _MIRROR),
    "conll2002": (_MIRROR,),
}
_CORPORA = """
conll2000/train.txt 2842164 82033cd7a72b209923a98007793e8f9de3abc1c8b79d646c50648eb949b87cea
conll2000/test.txt 639396 73b7b1e565fa75a1e22fe52ecdf41b6624d6f59dacb591d44252bf4d692b1628
conll2002/esp.train 2970825 a20d95cab7d88a19a86f8c1ad6329325c99fbd9529ed978cbd7e31d4b01b4008
conll2002/esp.testa 594058 85c17793b77881c53d19017d9d0f1e6fb98b7ddcab54a5f24b05ed1793103c87
conll2002/esp.testb 575807 1f8f7a392c6d4979a5592a5794eed43d7869b46da6851bbcde99714149f1d016
conll2002/ned.train 2377174 0a419dcb356b62c8cff38515675550b3d5dbea9f45a1c4956328dbd5cc7fcdbc
conll2002/ned.testa 450785 51259d4bfe52462f211d3d0b67173a7ecbfa296e199f6c6bd0895f4c78155057
conll2002/ned.testb 814282 2aa748edb82e6f9c4d82e57a4bed69ded18cfa4803122c75070335d513517488
"""


class _Corpus(NamedTuple):
    """A published file: folder and name in the cache, length and SHA-256 of its text."""

    folder: str
    file: str
    n_bytes: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.folder}/{self.file}"


CORPORA = {
    name: _Corpus(*name.partition("/")[::2], int(n_bytes), sha256)
    for name, n_bytes, sha256 in map(str.split, _CORPORA.split("\n")[1:-1])
}


def fetch_conll2000(
    *,
    subset: str = "train",
    data_home: str | os.PathLike | None = None,
    base_url: str | None = None,
    download_if_missing: bool = True,
    n_retries: int = 3,
) -> tuple[list[Columns], list[list[str]]]:
    """Load the shared task of CoNLL-2000: chunking of English newspaper text.

    8,936 sentences for training (211,727 tokens) and 2,012 for testing (47,377), with 11 types of
    phrases in IOB2.

    Parameters
    ----------
    subset : {"train", "test"}, default="train"
    data_home : str or path, optional
        Folder of the cache. Default: the environment variable ``SKLSEQ_CACHE``, or the user's
        folder for caches.
    base_url : str, optional
        Address of a mirror: a folder with the file or its ``.gz``. Default: the folder
        ``conll2000`` of the environment variable ``SKLSEQ_MIRROR`` if it is set, else the public
        addresses.
    download_if_missing : bool, default=True
        False: raise an error if the file is not in the cache.
    n_retries : int, default=3
        Number of further attempts after a failure, after 1, 2, 3, ... seconds.

    Returns
    -------
    X : list of dict
        One dict for each sentence: ``{"w": [...], "pos": [...]}``.
    y : list of list of str
        Labels in IOB2.

    Raises
    ------
    ImportError
        If pooch is missing: ``pip install 'sklseq[data]'``.
    OSError
        If no address has the text; the message lists the failures and where to put the file by
        hand.

    Notes
    -----
    The file comes from the page of the task or a public mirror. The SHA-256 checksum of the
    decompressed text is verified.

    References
    ----------
    E. F. Tjong Kim Sang, S. Buchholz (2000), "Introduction to the CoNLL-2000 shared task:
    chunking", CoNLL. https://www.clips.uantwerpen.be/conll2000/chunking/

    Examples
    --------
    ::

        X, y = fetch_conll2000()
        X_test, y_test = fetch_conll2000(subset="test")
    """
    check_choice("subset", subset, ("train", "test"))
    name = f"conll2000/{subset}.txt"
    return _load(CORPORA[name], data_home, base_url, download_if_missing, n_retries)


def fetch_conll2002(
    *,
    subset: str = "train",
    language: str = "esp",
    data_home: str | os.PathLike | None = None,
    base_url: str | None = None,
    download_if_missing: bool = True,
    n_retries: int = 3,
) -> tuple[list[Columns], list[list[str]]]:
    """Load the shared task of CoNLL-2002: named entities in Spanish or Dutch news.

    Spanish: 8,323 sentences for training, 1,915 for development ("testa") and 1,517 for testing
    ("testb"); Dutch: 15,806, 2,895 and 5,195. Persons, organisations, locations and miscellaneous
    names, in IOB2.

    Parameters
    ----------
    subset : {"train", "testa", "testb"}, default="train"
    language : {"esp", "ned"}, default="esp"
        Spanish or Dutch, as the task calls them.
    data_home, base_url, download_if_missing, n_retries
        As in :func:`fetch_conll2000`; the folder of ``SKLSEQ_MIRROR`` is ``conll2002``.

    Returns
    -------
    X : list of dict
        One dict for each sentence: ``{"w": [...], "pos": [...]}``; parts of speech come from a
        tagger.
    y : list of list of str
        Labels in IOB2.

    Notes
    -----
    The files come from a public mirror, in UTF-8; errors and checks are those of
    :func:`fetch_conll2000`. The data are for research on the task; see its page for the terms.

    References
    ----------
    E. F. Tjong Kim Sang (2002), "Introduction to the CoNLL-2002 shared task: language-independent
    named entity recognition", CoNLL. https://www.clips.uantwerpen.be/conll2002/ner/

    Examples
    --------
    ::

        X, y = fetch_conll2002()
        X_test, y_test = fetch_conll2002(subset="testb")
    """
    check_choice("language", language, ("esp", "ned"))
    check_choice("subset", subset, ("train", "testa", "testb"))
    name = f"conll2002/{language}.{subset}"
    return _load(CORPORA[name], data_home, base_url, download_if_missing, n_retries)


def _load(
    corpus: _Corpus,
    data_home: str | os.PathLike | None,
    base_url: str | None,
    download_if_missing: bool,
    n_retries: int,
) -> tuple[list[Columns], list[list[str]]]:
    check_number("n_retries", n_retries, whole=True)
    home = data_home or os.environ.get("SKLSEQ_CACHE")
    home = Path(home).expanduser() if home else Path(_pooch().os_cache("sklseq"))
    path = home / corpus.folder / corpus.file
    if not _is_whole(path, corpus):
        if not download_if_missing:
            state = "damaged in" if path.exists() else "not in"
            raise OSError(
                f"{corpus} is {state} the cache ({path}); use download_if_missing=True, or "
                f"put the file there: SHA-256 {corpus.sha256}."
            )
        _download(corpus, path, _addresses(corpus, base_url), n_retries)
    X, y = read_conll(path, columns=["w", "pos"])
    return X, y or []


def _pooch() -> Any:
    try:
        import pooch
    except ImportError:
        raise ImportError(
            "Downloading corpora needs pooch, which is missing; pip install 'sklseq[data]'."
        ) from None
    return pooch


def _addresses(corpus: _Corpus, base_url: str | None) -> list[str]:
    mirror = os.environ.get("SKLSEQ_MIRROR")
    if base_url is None and mirror:
        base_url = f"{mirror.rstrip('/')}/{corpus.folder}"
    if base_url is None:
        return [place.format(corpus.folder, corpus.file) for place in ADDRESSES[corpus.folder]]
    return [f"{base_url.rstrip('/')}/{corpus.file}{ending}" for ending in (".gz", "")]


def _is_whole(path: Path, corpus: _Corpus) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == corpus.sha256


def _download(corpus: _Corpus, path: Path, addresses: list[str], n_retries: int) -> None:
    """Download by pooch, which writes a temporary file and moves it to `path` when it is whole."""
    store = _pooch().create(
        path=path.parent, base_url="", registry={corpus.file: f"sha256:{corpus.sha256}"},
        urls={corpus.file: addresses[0]}, retry_if_failed=n_retries,
    )  # fmt: skip
    try:
        store.fetch(corpus.file, downloader=_Downloader(corpus, addresses))
    except _NotFoundError as error:
        raise OSError(
            f"Could not fetch {corpus}. {error} Check the connection, give the address of a "
            f"mirror as base_url= or SKLSEQ_MIRROR, or put the text into {path} (SHA-256 "
            f"{corpus.sha256})."
        ) from None


class _NotFoundError(ValueError):
    """No address has the text; pooch tries again after a ValueError."""


class _Downloader:
    """Callable for pooch that tries the addresses in turn, unzips and verifies the text."""

    def __init__(self, corpus: _Corpus, addresses: list[str]):
        self.corpus = corpus
        self.addresses = addresses

    def __call__(self, url: str, output_file: Any, pooch: Any) -> None:
        from requests import RequestException

        download = _pooch().HTTPDownloader(timeout=SECONDS)
        reasons = []
        for address in self.addresses:
            try:
                download(address, output_file, pooch)
                text = self._text(Path(output_file).read_bytes())
            except (RequestException, OSError, EOFError, ValueError, zlib.error) as error:
                reasons.append(f"{address}: {_reason(error)}.")
                continue
            Path(output_file).write_bytes(text)
            return
        raise _NotFoundError(" ".join(reasons))

    def _text(self, data: bytes) -> bytes:
        text = data
        if data.startswith(b"\x1f\x8b"):  # read no more than needed: the file may be a zip bomb
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
                text = file.read(self.corpus.n_bytes + 1)
        seen = hashlib.sha256(text).hexdigest()
        if seen != self.corpus.sha256:
            is_longer = len(text) > self.corpus.n_bytes
            what = "its text is longer" if is_longer else f"{len(text)} bytes of text"
            raise ValueError(f"another file, {what}, with the SHA-256 checksum {seen}")
        return text


def _reason(error: Exception) -> str:
    response = getattr(error, "response", None)
    if response is not None:
        return f"answers with status {response.status_code}"
    if "ConnectionError" in type(error).__name__ or "Timeout" in type(error).__name__:
        return "cannot be reached"
    return str(error).rstrip(".") or type(error).__name__
