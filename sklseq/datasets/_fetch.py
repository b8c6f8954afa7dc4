"""Corpora of shared tasks from their public places: fetched once, checked, kept.

    name ── cache ── hit ─▶ read_conll
              └─ miss ── each address in turn ── unzip ── SHA-256 of the text ─▶ cache

What is checked is the text, not its compressed form: a mirror may have compressed it anew.
"""

import gzip
import hashlib
import io
import os
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from ._conll import Columns, read_conll

__all__ = ["fetch_conll2000", "fetch_conll2002"]

CLIPS = "https://www.clips.uantwerpen.be/conll2000/chunking/"
MIRROR = "https://raw.githubusercontent.com/teropa/nlp/master/resources/corpora/"
SECONDS = 30  # without an answer


class _Corpus(NamedTuple):
    """A published file: name in the cache, length and SHA-256 of its text, addresses."""

    name: str
    n_bytes: int
    sha256: str
    addresses: tuple[str, ...]


def _conll2000(subset: str, n_bytes: int, sha256: str) -> _Corpus:
    name = f"{subset}.txt"
    addresses = (f"{CLIPS}{name}.gz", f"{MIRROR}conll2000/{name}")
    return _Corpus(f"conll2000/{name}", n_bytes, sha256, addresses)


def _conll2002(name: str, n_bytes: int, sha256: str) -> _Corpus:
    return _Corpus(f"conll2002/{name}", n_bytes, sha256, (f"{MIRROR}conll2002/{name}",))


CONLL2000 = {
    corpus.name.split("/")[1].removesuffix(".txt"): corpus
    for corpus in (
        _conll2000(
            "train", 2842164, "82033cd7a72b209923a98007793e8f9de3abc1c8b79d646c50648eb949b87cea"
        ),
        _conll2000(
            "test", 639396, "73b7b1e565fa75a1e22fe52ecdf41b6624d6f59dacb591d44252bf4d692b1628"
        ),
    )
}
CONLL2002 = {
    corpus.name.split("/")[1]: corpus
    for corpus in (
        _conll2002(
            "esp.train", 2970825, "a20d95cab7d88a19a86f8c1ad6329325c99fbd9529ed978cbd7e31d4b01b4008"
        ),
        _conll2002(
            "esp.testa", 594058, "85c17793b77881c53d19017d9d0f1e6fb98b7ddcab54a5f24b05ed1793103c87"
        ),
        _conll2002(
            "esp.testb", 575807, "1f8f7a392c6d4979a5592a5794eed43d7869b46da6851bbcde99714149f1d016"
        ),
        _conll2002(
            "ned.train", 2377174, "0a419dcb356b62c8cff38515675550b3d5dbea9f45a1c4956328dbd5cc7fcdbc"
        ),
        _conll2002(
            "ned.testa", 450785, "51259d4bfe52462f211d3d0b67173a7ecbfa296e199f6c6bd0895f4c78155057"
        ),
        _conll2002(
            "ned.testb", 814282, "2aa748edb82e6f9c4d82e57a4bed69ded18cfa4803122c75070335d513517488"
        ),
    )
}


def fetch_conll2000(
    *,
    subset: str = "train",
    data_home: str | os.PathLike | None = None,
    base_url: str | None = None,
    download_if_missing: bool = True,
    n_retries: int = 3,
) -> tuple[list[Columns], list[list[str]]]:
    """English text chunking, the shared task of CoNLL-2000: newspaper text in phrases.

    8,936 sentences to train on (211,727 tokens) and 2,012 to test (47,377), of 11 types of phrases
    in IOB2.

    Parameters
    ----------
    subset : {"train", "test"}, default="train"
    data_home : str or path, optional
        Folder of the cache. By default what the environment variable ``SKLSEQ_CACHE`` names, or
        the user's folder for caches.
    base_url : str, optional
        Address of a folder with the file or its ``.gz``, instead of the public places: a mirror.
        By default the folder ``conll2000`` of what the environment variable ``SKLSEQ_MIRROR``
        names, if it is set.
    download_if_missing : bool, default=True
        False: an error if the file is not in the cache.
    n_retries : int, default=3
        How often to try again if that fails, after 1, 2, 3, ... seconds.

    Returns
    -------
    X : list of dict
        A sentence each: ``{"w": [...], "pos": [...]}``.
    y : list of list of str
        Labels in IOB2.

    Raises
    ------
    ImportError
        If pooch is missing: ``pip install 'sklseq[data]'``.
    OSError
        If no address answers with the text: the message says what each did and where to put the
        file by hand.

    Notes
    -----
    The file comes from the page of the task or a public mirror. What is checked is the SHA-256
    checksum of the decompressed text.

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
    corpus = _chosen(CONLL2000, "subset", subset)
    return _load(corpus, data_home, base_url, download_if_missing, n_retries)


def fetch_conll2002(
    *,
    subset: str = "train",
    language: str = "esp",
    data_home: str | os.PathLike | None = None,
    base_url: str | None = None,
    download_if_missing: bool = True,
    n_retries: int = 3,
) -> tuple[list[Columns], list[list[str]]]:
    """Named entities in Spanish or Dutch news, the shared task of CoNLL-2002.

    Spanish: 8,323 sentences to train on, 1,915 to develop ("testa") and 1,517 to test ("testb");
    Dutch: 15,806, 2,895 and 5,195. Persons, organisations, locations and miscellaneous, in IOB2.

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
        A sentence each: ``{"w": [...], "pos": [...]}``; parts of speech are a tagger's.
    y : list of list of str
        Labels in IOB2.

    Raises
    ------
    ImportError
        If pooch is missing: ``pip install 'sklseq[data]'``.
    OSError
        If no address answers with the text: the message says what each did and where to put the
        file by hand.

    Notes
    -----
    The files come from a public mirror, in UTF-8. What is checked is the SHA-256 checksum of the
    decompressed text. The data are for research on the task; see its page for the terms.

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
    languages = {name.split(".")[0]: None for name in CONLL2002}
    _chosen(languages, "language", language)
    of_language = {
        name.split(".")[1]: corpus
        for name, corpus in CONLL2002.items()
        if name.startswith(f"{language}.")
    }
    corpus = _chosen(of_language, "subset", subset)
    return _load(corpus, data_home, base_url, download_if_missing, n_retries)


def _chosen(known: dict, parameter: str, value: Any) -> Any:
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{parameter} must be one of {tuple(known)}; got {value!r}.")
    return known[value]


def _load(
    corpus: _Corpus,
    data_home: Any,
    base_url: str | None,
    download_if_missing: bool,
    n_retries: int,
) -> tuple[list[Columns], list[list[str]]]:
    folder, name = corpus.name.split("/")
    home = _home(data_home) / folder
    path = home / name
    if not _is_whole(path, corpus):
        if not download_if_missing:
            state = "damaged in" if path.exists() else "not in"
            raise OSError(
                f"{corpus.name} is {state} the cache ({path}); use download_if_missing=True, or "
                f"put the file there: SHA-256 {corpus.sha256}."
            )
        _download(corpus, home, _addresses(corpus, base_url), n_retries)
    return read_conll(path, columns=["w", "pos"])


def _home(data_home: Any) -> Path:
    home = data_home or os.environ.get("SKLSEQ_CACHE")
    return Path(home).expanduser() if home else Path(_pooch().os_cache("sklseq"))


def _pooch() -> Any:
    try:
        import pooch
    except ImportError:
        raise ImportError(
            "Data are fetched by pooch, which is missing; pip install 'sklseq[data]'."
        ) from None
    return pooch


def _addresses(corpus: _Corpus, base_url: str | None) -> tuple[str, ...]:
    folder, name = corpus.name.split("/")
    mirror = os.environ.get("SKLSEQ_MIRROR")
    if base_url is None and mirror:
        base_url = f"{mirror.rstrip('/')}/{folder}"
    if base_url is None:
        return corpus.addresses
    return tuple(f"{base_url.rstrip('/')}/{name}{ending}" for ending in (".gz", ""))


def _is_whole(path: Path, corpus: _Corpus) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == corpus.sha256


def _download(corpus: _Corpus, home: Path, addresses: tuple[str, ...], n_retries: int) -> None:
    """Into the cache, by pooch: through a file beside its place, moved there when it is whole."""
    pooch, name = _pooch(), corpus.name.split("/")[1]
    store = pooch.create(
        path=home, base_url="", registry={name: f"sha256:{corpus.sha256}"},
        urls={name: addresses[0]}, retry_if_failed=n_retries,
    )  # fmt: skip
    try:
        store.fetch(name, downloader=_FirstThatHasIt(corpus, addresses))
    except _NowhereError as error:
        raise OSError(
            f"Could not fetch {corpus.name}. {error} Check the connection, give the address of a "
            f"mirror as base_url= or SKLSEQ_MIRROR, or put the text into {home / name} (SHA-256 "
            f"{corpus.sha256})."
        ) from None


class _NowhereError(ValueError):
    """No address had the text; a ValueError, which pooch tries again."""


class _FirstThatHasIt:
    """What pooch calls to download: tries addresses in turn, unzips, checks the text."""

    def __init__(self, corpus: _Corpus, addresses: tuple[str, ...]):
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
        raise _NowhereError(" ".join(reasons))

    def _text(self, data: bytes) -> bytes:
        n, zipped = self.corpus.n_bytes, data.startswith(b"\x1f\x8b")
        text = _unzipped(data, n + 1) if zipped else data
        seen = hashlib.sha256(text).hexdigest()
        if seen != self.corpus.sha256:
            what = "its text is longer" if len(text) > n else f"{len(text)} bytes of text"
            raise ValueError(f"another file, {what}, with the SHA-256 checksum {seen}")
        return text


def _unzipped(data: bytes, n_bytes: int) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        return file.read(n_bytes)


def _reason(error: Exception) -> str:
    response = getattr(error, "response", None)
    if response is not None:
        return f"answers with status {response.status_code}"
    if "ConnectionError" in type(error).__name__ or "Timeout" in type(error).__name__:
        return "cannot be reached"
    return str(error).rstrip(".") or type(error).__name__
