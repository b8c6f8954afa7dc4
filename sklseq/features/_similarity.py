"""Similarity of a segment to the most similar entry of a word list.

TF-IDF cosine and Jaro-Winkler similarity are the two measures that Cohen, Ravikumar and Fienberg
(2003) found best for matching names, and that Sarawagi (2006), §4, uses.
"""

import re
from collections.abc import Iterable
from itertools import chain, count
from typing import Any

import numpy as np
from scipy import sparse

from sklseq._lib.ragged import offsets_of, ranges
from sklseq.features import _closest, _jaro_winkler
from sklseq.features._lexicon import lexicon_lines
from sklseq.features._spans import Spans

SIMILARITIES = ("tfidf", "jaro_winkler", "exact")
CERTAIN = 1 - 1e-6  # lower bound of the cosine of equal texts, whatever the rounding
EQUAL = 1 - 1e-12  # cosines above this are set to 1: the difference is rounding
_MARKS = re.compile(r"^[\W_]+|[\W_]+$")


def normal_form(token: str) -> str:
    """Fold case and strip punctuation: ``"(Computing,"`` becomes ``"computing"``."""
    return _MARKS.sub("", token).casefold()


def make_index(name: str, lexicon: Any, n_gram: int | None) -> dict[str, Any]:
    """Return the inverted index of a lexicon for :func:`closest_entries`.

    Terms are tokens in normal form, or their n-grams with a space before and after. The weights
    are those of scikit-learn's TfidfVectorizer, tf · (log((1 + n) / (1 + df)) + 1) for n entries,
    with rows of norm 1; its counting of terms would take several times as long.
    """
    from sklearn.feature_extraction.text import TfidfTransformer  # start-up

    forms, entries = _code_entries(lexicon_lines(name, lexicon))
    if not entries:
        raise ValueError(
            f"The lexicon {name!r} is empty: it has no entry with a letter or digit. Give at least "
            "one, or omit the lexicon."
        )
    codes = np.fromiter(chain.from_iterable(entries), np.int32)
    ends = offsets_of(np.fromiter(map(len, entries), np.int64, len(entries)))
    columns, of_term, before = forms, codes, np.arange(len(codes) + 1)
    if n_gram is not None:
        columns, of_term, before = _columns_of(forms, codes, n_gram)
    rows = sparse.csr_matrix(
        (np.ones(len(of_term)), of_term, before[ends]), shape=(len(entries), len(columns))
    )
    rows.sum_duplicates()
    weights = TfidfTransformer()
    by_term = weights.fit_transform(rows).tocsc()
    names = list(forms)
    return _index_texts([" ".join([names[code] for code in entry]) for entry in entries]) | {
        "columns": columns,
        "idf": weights.idf_,
        "posting_ends": by_term.indptr.astype(np.int64),
        "postings": by_term.indices.astype(np.int32),
        "weights": by_term.data,
    }


def _index_texts(texts: list[str]) -> dict[str, Any]:
    """Return the part of an index for the characters of its entries."""
    points = _code_points("".join(texts))
    alphabet = np.flatnonzero(np.bincount(points)).astype(np.int32)
    ends = offsets_of(np.fromiter(map(len, texts), np.int64, len(texts)))
    return {"alphabet": alphabet, "characters": _numbered(points, alphabet), "ends": ends}


def _code_entries(entries: list) -> tuple[dict[str, int], list[tuple[int, ...]]]:
    """Return codes of the tokens' normal forms, and the distinct entries as tuples of codes."""
    code_of: dict[str, int] = {}
    forms: dict[str, int] = {}
    distinct: dict[tuple[int, ...], None] = {}
    for entry in entries:
        own = []
        for token in entry.split() if isinstance(entry, str) else entry:
            code = code_of.get(token)
            if code is None:
                form = normal_form(token)
                code = code_of[token] = forms.setdefault(form, len(forms)) if form else -1
            if code >= 0:
                own.append(code)
        distinct[tuple(own)] = None
    distinct.pop((), None)  # entries without letters and digits
    return forms, list(distinct)


def _columns_of(forms: Iterable[str], codes: np.ndarray, n_gram: int) -> tuple:
    """Return columns of terms, columns of all tokens, and the start of each token's columns."""
    terms_of = [_terms(form, n_gram) for form in forms]
    terms = list(chain.from_iterable(terms_of))
    columns = dict(zip(dict.fromkeys(terms), count()))
    of_term = np.array([columns[term] for term in terms], dtype=np.int32)
    sizes = np.fromiter(map(len, terms_of), np.int64, len(terms_of))
    at = ranges(offsets_of(sizes)[codes], sizes[codes])
    return columns, of_term[at], offsets_of(sizes[codes])


def equal_entries(
    index: dict[str, Any], tokens: list[str], codes: np.ndarray, all_spans: list[Spans],
    cosine: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Return 1.0 for distinct spans that are an entry, tokens in normal form; else 0.

    Parameters
    ----------
    index, tokens, codes, all_spans
        As in :func:`jaro_winkler`.
    cosine : ndarray of shape (n_tokens, longest)
        From :func:`closest_entries`; equal texts have cosine 1.

    Returns
    -------
    ndarray of shape (n_tokens, longest)
        Set at the first occurrence of each distinct span, 0 elsewhere.
    """
    out = np.zeros(cosine.shape)
    if cosine.max(initial=0) < CERTAIN:
        return out
    points = index["alphabet"][index["characters"] - 1].astype("<u4")
    text, ends = points.tobytes().decode("utf-32-le", "surrogatepass"), index["ends"].tolist()
    entries = {text[a:b] for a, b in zip(ends, ends[1:])}
    for spans in all_spans:
        for at in spans.example[cosine[spans.example, spans.length - 1] > CERTAIN].tolist():
            own = [tokens[code] for code in codes[at : at + spans.length]]
            out[at, spans.length - 1] = " ".join(filter(None, own)) in entries
    return out


def _terms(token: str, n_gram: int | None) -> list[str]:
    """Return the terms of a token in normal form: itself, or its n-grams between spaces."""
    if n_gram is None or not token:
        return [token] if token else []
    padded = f" {token} "
    return [padded[i : i + n_gram] for i in range(max(1, len(padded) - n_gram + 1))]


def closest_entries(
    index: dict[str, Any], tokens: list[str], codes: np.ndarray, offsets: np.ndarray,
    longest: int, n_gram: int | None, n_best: int,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return the cosine of every span with its closest entry, and the ``n_best`` closest entries.

    ``index`` is that of :func:`make_index`; ``tokens`` are distinct and in normal form, ``codes``
    their numbers for all tokens of all sequences. ``cosine[t, l - 1]`` is for the l tokens from t,
    l up to ``longest``; 0 if no entry shares a term. ``best``, int32 of shape (n_tokens, longest,
    n_best), has the entries, unordered; -1: none.
    """
    ends, terms, weights, n_terms = _vectors(index, tokens, n_gram)
    posting_ends = np.full(n_terms + 1, index["posting_ends"][-1])
    posting_ends[: len(index["posting_ends"])] = index["posting_ends"]
    cosine = np.zeros((len(codes), longest))
    best = np.full((len(codes), longest, n_best), -1, dtype=np.int32)
    _closest.closest_entries(
        codes, offsets, ends, terms, weights, posting_ends, index["postings"], index["weights"],
        len(index["ends"]) - 1, cosine, best,
    )  # fmt: skip
    cosine[cosine > EQUAL] = 1.0
    return cosine, best


def _vectors(index: dict[str, Any], tokens: list[str], n_gram: int | None) -> tuple:
    """Return tf · idf of the terms of each token.

    Terms of no entry have df = 0 and columns after those of the index: they make a segment less
    similar to all entries.
    """
    columns, known = index["columns"], len(index["columns"])
    new: dict[str, int] = {}
    ends, terms = [0], []
    for token in tokens:
        for term in _terms(token, n_gram):
            column = columns.get(term)
            terms.append(new.setdefault(term, known + len(new)) if column is None else column)
        ends.append(len(terms))
    of_new = np.log(float(len(index["ends"]))) + 1.0
    idf = np.concatenate([index["idf"], np.full(len(new), of_new)])
    columns_of = np.array(terms, dtype=np.int32)
    return np.array(ends, dtype=np.int64), columns_of, idf[columns_of], known + len(new)


def _span_texts(index: dict[str, Any], tokens: list[str], codes: np.ndarray) -> tuple:
    """Return tokens joined by spaces, as character numbers, and the start of each code's token.

    The span from a to b is text[first[a] : first[b] - 1], without the space before b. Empty tokens
    are left out. Characters of the index are numbered from 1, others are 0.
    """
    text = "".join(f"{token} " for token in tokens if token)
    sizes = np.array([len(token) + 1 if token else 0 for token in tokens], dtype=np.int64)
    at = ranges(offsets_of(sizes)[codes], sizes[codes])
    return _numbered(_code_points(text), index["alphabet"])[at], offsets_of(sizes[codes])


def _code_points(text: str) -> np.ndarray:
    # Unpaired surrogates are treated as ordinary characters.
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _numbered(points: np.ndarray, alphabet: np.ndarray) -> np.ndarray:
    # Position of each character in the sorted alphabet, from 1; 0 if it is not in the alphabet.
    number = np.zeros(max(int(points.max(initial=0)), int(alphabet[-1])) + 1, dtype=np.int32)
    number[alphabet] = np.arange(1, len(alphabet) + 1)
    return number[points]


def jaro_winkler(
    index: dict[str, Any], tokens: list[str], codes: np.ndarray, all_spans: list[Spans],
    best: np.ndarray, lowest: float,
) -> np.ndarray:  # fmt: skip
    """Return the Jaro-Winkler similarity of distinct spans to the closest ``best`` entry.

    Parameters
    ----------
    index, tokens, codes
        As in :func:`closest_entries`, which gives ``best``.
    all_spans : list of Spans
    best : int32 ndarray of shape (n_tokens, longest, n_best)
    lowest : float
        Similarities below this value are 0.

    Returns
    -------
    ndarray of shape (n_tokens, longest)
        Set at the first occurrence of each distinct span, 0 elsewhere.
    """
    text, first = _span_texts(index, tokens, codes)
    wanted, out = np.zeros(best.shape[:2], np.uint8), np.zeros(best.shape[:2])
    for spans in all_spans:
        wanted[spans.example, spans.length - 1] = 1
    _jaro_winkler.most_similar(
        text, first, wanted, best, index["characters"], index["ends"],
        len(index["alphabet"]) + 1, lowest, out,
    )  # fmt: skip
    return out
