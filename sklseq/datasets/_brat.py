"""Reader of brat's standoff annotations: a text file, and a file of its spans of characters."""

import os
import re
from pathlib import Path

from sklseq._lib.checks import check_choice
from sklseq._lib.lines import as_lines

from ._conll import read_text

_SPAN = re.compile(r"T\S*\t(\S+) (\d{1,18} \d{1,18}(?:;\d{1,18} \d{1,18})*)\t(.*)")
Span = tuple[int, int, str]


def read_brat(
    path: str | os.PathLike[str], *, fragments: str = "error", encoding: str = "utf-8"
) -> tuple[list[str], list[list[Span]]]:
    """Read the texts and spans of brat's standoff format.

    Parameters
    ----------
    path : str or path-like
        An ``.ann`` file, beside which there is a ``.txt`` file of the same name; or a folder of
        such pairs, which are read in the order of their names.
    fragments : {"error", "expand", "drop"}, default="error"
        A span of several fragments, such as ``0 5;16 23``: raise an error, take all characters
        from the first to the last one, or leave the span out.
    encoding : str, default="utf-8"

    Returns
    -------
    texts : list of str
    spans : list of lists of (start, stop, type)
        The characters ``text[start:stop]`` of each span, sorted; they may overlap.

    Raises
    ------
    ValueError
        If a line that begins with T is not a span, a span is not in the text or has another
        text, or a folder has no ``.ann`` file.
    TypeError
        If `path` is not the name of a file or folder.
    OSError
        If a file cannot be read.

    See Also
    --------
    align_spans : spans of characters as spans of tokens.

    Notes
    -----
    Lines that begin with T are spans; all others, such as relations, events, attributes and notes,
    are skipped.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklseq import segments_to_labels
    >>> from sklseq.datasets import align_spans, read_brat, token_offsets
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("Ann from New York")
    ...     _ = Path(folder, "a.ann").write_text("T1\\tLOC 9 17\\tNew York\\n")
    ...     texts, spans = read_brat(folder)
    >>> spans
    [[(9, 17, 'LOC')]]
    >>> X = [text.split() for text in texts]
    >>> found = [align_spans(s, token_offsets(t, x)) for t, s, x in zip(texts, spans, X)]
    >>> [segments_to_labels(s, len(x)).tolist() for s, x in zip(found, X)]
    [['O', 'O', 'B-LOC', 'I-LOC']]
    """
    check_choice("fragments", fragments, ("error", "expand", "drop"))
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f"path must be the name of an .ann file, or of a folder of them; got {path!r:.40}."
        )
    texts, spans = [], []
    for file in _files(Path(path)):
        # Offsets count the characters of the file: line ends stay as they are.
        _, text = read_text(file.with_suffix(".txt"), encoding)
        name, lines = read_text(file, encoding)
        found = []
        for number, line in enumerate(as_lines(lines), 1):
            if line.startswith("T"):
                span = _read_span(line, text, f"{name}, line {number}", fragments)
                found += [] if span is None else [span]
        texts.append(text)
        spans.append(sorted(found))
    return texts, spans


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if path.suffix != ".ann":
            raise ValueError(f"path must be an .ann file, or a folder of them; got {str(path)!r}.")
        return [path]
    files = sorted(path.glob("*.ann"))
    if not files:
        raise ValueError(f"The folder {str(path)!r} has no .ann file; give another one.")
    return files


def _read_span(line: str, text: str, where: str, fragments: str) -> Span | None:
    match = _SPAN.fullmatch(line)
    if match is None:
        raise ValueError(
            f"{where}: {line!r:.60} must have the form id, tab, type, start and stop, tab, text; "
            "repair the line."
        )
    type_, ranges, covered = match.groups()
    parts = [tuple(map(int, pair.split())) for pair in ranges.split(";")]
    first, last = min(a for a, _ in parts), max(b for _, b in parts)
    if not all(a < b for a, b in parts) or last > len(text):
        raise ValueError(
            f"{where}: the span {ranges!r} is not in its text, which has {len(text)} characters; "
            "repair the line."
        )
    found = " ".join(text[a:b] for a, b in parts)
    if _words(found) != _words(covered):
        raise ValueError(
            f"{where}: characters {ranges} of the text are {found!r:.40} and not {covered!r:.40}; "
            "give the text and the encoding that were annotated."
        )
    if len(parts) > 1 and fragments == "error":
        raise ValueError(
            f"{where}: the span {ranges!r} has {len(parts)} fragments; pass fragments='expand' "
            "or 'drop'."
        )
    return None if len(parts) > 1 and fragments == "drop" else (first, last, type_)


def _words(text: str) -> list[str]:
    return text.split()  # a line end within a span is written as a space
