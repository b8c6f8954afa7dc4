"""Reader for CoNLL-U, the format of Universal Dependencies: ten fields a line.

text ── sentences ── comments ──▶ metadata
                 └── words (ranges and empty nodes are checked and dropped) ──▶ X, y
"""

import re
from collections.abc import Iterator, Sequence

from sklseq._lib.checks import check_names
from sklseq._lib.lines import as_lines

from ._conll import TextLike, read_text, shorten

FIELDS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_RANGE_OR_EMPTY = re.compile(r"([0-9]+)([-.])([0-9]+)")


def read_conllu(
    path: TextLike,
    *,
    columns: Sequence[str] = ("form",),
    label: str | None = "upos",
    return_metadata: bool = False,
) -> tuple:
    """Read the words of a treebank in the CoNLL-U format.

    Parameters
    ----------
    path : str, path-like, file object or list of str
        The file in UTF-8, or its lines; a file object is open in text or binary mode. Gzip, bzip2
        and xz are recognised by their first bytes.
    columns : sequence of str, default=("form",)
        The fields to return as columns, out of "id", "form", "lemma", "upos", "xpos", "feats",
        "head", "deprel", "deps" and "misc".
    label : str or None, default="upos"
        The field with the labels. None: no labels.
    return_metadata : bool, default=False
        Also return the comments of each sentence.

    Returns
    -------
    X : list of dict
        One dict for each sentence, from the name of a field to its value for each word.
    y : list of list of str, or None
        The labels of each sentence; None if ``label=None``.
    metadata : list of dict
        With ``return_metadata``: the comments of each sentence. ``# sent_id = 7`` is the entry
        ``"sent_id": "7"``, a comment without an equals sign has the value "".

    Raises
    ------
    ValueError
        If a line does not have ten fields or one is empty, words are not numbered from 1, a range
        or an empty node is in the wrong place, no word has a value of `label`, a name is not a
        field, or the bytes are not UTF-8 text or not a whole compressed file.

    See Also
    --------
    read_conll : other column files.

    Notes
    -----
    The rules are those of the format [1]_. Fields are separated by single tabs, and may contain
    spaces. Labels belong to syntactic words, numbered 1, 2, 3, ...: lines of multiword tokens,
    such as ``1-2 don't`` before ``1 do`` and ``2 n't``, and of empty nodes, such as ``8.1``, are
    dropped. ``_``, which means an unspecified value, is returned unchanged. Beyond the format,
    lines may end in CRLF or CR, several blank lines may follow each other, and comments may be
    anywhere in or before their sentence.

    Documents, for ``GroupKFold``, are
    ``numpy.cumsum([any(key.startswith("newdoc") for key in m) for m in metadata])``.

    References
    ----------
    .. [1] "CoNLL-U Format", Universal Dependencies. https://universaldependencies.org/format.html

    Examples
    --------
    >>> import io
    >>> from sklseq.datasets import read_conllu
    >>> words = [("1-2", "Don't", "_"), ("1", "Do", "AUX"), ("2", "n't", "PART")]
    >>> lines = ["\\t".join([i, form, "_", upos] + ["_"] * 6) for i, form, upos in words]
    >>> file = io.StringIO("# sent_id = a\\n" + "\\n".join(lines) + "\\n\\n")
    >>> X, y, metadata = read_conllu(file, return_metadata=True)
    >>> X, y, metadata
    ([{'form': ['Do', "n't"]}], [['AUX', 'PART']], [{'sent_id': 'a'}])
    """
    names = check_names(columns)
    for field in names if label is None else [*names, label]:
        if field not in FIELDS:
            raise ValueError(f"{field!r} is not a field of CoNLL-U; choose from {FIELDS}.")
    name, text = read_text(path, "utf-8")
    X, y, metadata = [], [], []
    for comments, lines in _sentences(text):
        table = dict(zip(FIELDS, zip(*_words(name, lines))))
        X.append({field: list(table[field]) for field in names})
        y.append(list(table[label]) if label else [])
        metadata.append(_entries(comments))
    if label and y and all(value == "_" for labels in y for value in labels):
        raise ValueError(f"No word of {name} has a value of {label!r}; choose another label=.")
    found = X, y if label else None
    return (*found, metadata) if return_metadata else found


def _sentences(text: str) -> Iterator[tuple[list[str], list[tuple[int, str]]]]:
    """Yield the comments and the numbered lines of words of each sentence."""
    comments, lines = [], []
    for number, line in enumerate([*as_lines(text), ""], 1):
        if line.startswith("#"):
            comments.append(line)
        elif line:
            lines.append((number, line))
        elif lines:
            yield comments, lines
            comments, lines = [], []


def _words(name: str, lines: list[tuple[int, str]]) -> list[list[str]]:
    words, n_empty, end = [], 0, 0  # empty nodes since the last word; end of the last range
    for number, line in lines:
        fields = line.split("\t")
        if len(fields) != len(FIELDS) or "" in fields:
            raise ValueError(
                f"{name}, line {number}: a line must have ten fields that are not empty, with a "
                f"tab between; got {shorten(line)!r}: repair it, or read it with read_conll."
            )
        if fields[0] == str(len(words) + 1):
            words.append(fields)
            n_empty = 0
            continue
        match = _RANGE_OR_EMPTY.fullmatch(fields[0])
        first, kind, last = (int(match[1]), match[2], int(match[3])) if match else (0, "", 0)
        if kind == "-" and first == len(words) + 1 and end < first <= last:
            end = last
        elif kind == "." and first == len(words) and last == n_empty + 1:
            n_empty = last
        else:
            raise ValueError(
                f"{name}, line {number}: id {fields[0]!r} is not the next word, "
                f"{len(words) + 1}, nor a range or empty node that may stand there; repair the "
                "line."
            )
    if not words or end > len(words):
        raise ValueError(
            f"{name}, line {lines[-1][0]}: the sentence ends after {len(words)} words, but must "
            f"have {max(end, 1)}; repair it."
        )
    return words


def _entries(comments: list[str]) -> dict[str, str]:
    parts = (comment.lstrip("#").partition("=") for comment in comments)
    return {key.strip(): value.strip() for key, _, value in parts}
