"""Reader for inline tags, the form in which segments are written by hand, one sequence a line."""

import re

from sklseq._lib.lines import as_lines

from ._conll import TextLike, read_text

_TAG = re.compile(r"<(/?)([^<>\s/](?:[^<>\s]*[^<>\s/])?)(/?)>")


def read_tagged(
    path: TextLike, *, outside: str = "O", encoding: str = "utf-8"
) -> tuple[list[list[str]], list[list[str]]]:
    """Read a file with one sequence a line, its segments between ``<type>`` and ``</type>``.

    Parameters
    ----------
    path : str, path-like, file object or list of str
        The file, or its lines; a file object is open in text or binary mode. Gzip, bzip2 and xz are
        recognised by their first bytes.
    outside : str, default="O"
        Label of tokens between segments.
    encoding : str, default="utf-8"
        Encoding of the text; unused if `path` is a file open in text mode.

    Returns
    -------
    X : list of list of str
        The tokens of each sequence; white space and tags separate them.
    y : list of list of str
        Their IOB2 labels.

    Raises
    ------
    ValueError
        If segments are nested, a closing tag does not match the open segment, or a segment is
        still open at the end of its line.

    See Also
    --------
    read_conll : one token a line.

    Notes
    -----
    Blank lines and segments without tokens, such as ``<city/>``, are skipped. A tag is a name
    without white space in angle brackets; attributes and entities of XML are not interpreted:
    ``&amp;`` is left unchanged, as is ``<`` before anything else, as in "a < b".

    Examples
    --------
    >>> import io
    >>> from sklseq.datasets import read_tagged
    >>> file = io.StringIO("<author> A. Smith </author> in <city>New York</city>\\n")
    >>> read_tagged(file)
    ([['A.', 'Smith', 'in', 'New', 'York']], [['B-author', 'I-author', 'O', 'B-city', 'I-city']])
    """
    name, text = read_text(path, encoding)
    X, y = [], []
    for number, line in enumerate(as_lines(text), 1):
        if line.strip():
            tokens, labels = _read_line(line, outside, f"{name}, line {number}")
            X.append(tokens)
            y.append(labels)
    return X, y


def _read_line(line: str, outside: str, where: str) -> tuple[list[str], list[str]]:
    tokens, labels, inside, at = [], [], None, 0
    for tag in [*_TAG.finditer(line), None]:
        found = line[at : tag.start() if tag else len(line)].split()
        tokens += found
        if inside is None:
            labels += [outside] * len(found)
        elif found:
            labels += [f"B-{inside}"] + [f"I-{inside}"] * (len(found) - 1)
        if tag is None:
            break
        inside, at = _after(tag, inside, where), tag.end()
    if inside is not None:
        raise ValueError(f"{where}: <{inside}> is not closed; add </{inside}>.")
    return tokens, labels


def _after(tag: re.Match, inside: str | None, where: str) -> str | None:
    """Return the segment that is open after a tag."""
    closes, name, is_empty = tag.groups()
    if closes and is_empty:
        raise ValueError(f"{where}: {tag[0]} both closes and is empty; correct the tag.")
    if closes and name != inside:
        opened = f"<{inside}> is open" if inside else "nothing is open"
        raise ValueError(f"{where}: {tag[0]} where {opened}; correct the tag.")
    if not closes and inside is not None:
        raise ValueError(
            f"{where}: {tag[0]} inside <{inside}>; segments cannot be nested: close that before."
        )
    return None if closes or is_empty else name
