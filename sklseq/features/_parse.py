"""Parser of templates in the notations of CRFsuite, CRF++ and Wapiti."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sklseq._lib.lines import as_lines
from sklseq.data.sequences import STATE, TRANSITION
from sklseq.features._commands import command_of, split_line

MAX_OFFSET = 1000

_PART = re.compile(r"\s*([^\[\]|%]+?)\s*\[\s*([+-]?\d+)\s*\]\s*")
# First letters of the lines of CRF++ and Wapiti.
ROLES = {"U": STATE, "u": STATE, "B": TRANSITION, "b": TRANSITION, "*": STATE | TRANSITION}
_FORMS = (
    "Write 'w[-1]' or 'w[0]|pos[1]', a tuple like (('w', -1), ('pos', 0)), "
    "or a CRF++ line like 'U05:%x[-1,0]/%x[0,1]'; give a file as pathlib.Path."
)


class Template(NamedTuple):
    """A template; the name of its attributes alternates between literals and values.

    Attributes
    ----------
    text : str
        Name in error messages.
    parts : tuple of (column, offset)
        The joined values. Empty: the attribute is constant.
    literals : tuple of str
        The text before each value, and after the last.
    flag : int
        Rows that have the attribute, if ``parts`` is empty: position in ``_grams.FLAGS``.
    role : int
        Weights of its attributes, coded as in ``Sequences.roles``.
    """

    text: str
    parts: tuple[tuple[str, int], ...]
    literals: tuple[str, ...]
    flag: int = 0
    role: int = STATE


def default_templates(columns: Sequence[str]) -> list[str]:
    """Return a window of five values and its pairs, and triples of tags.

    The first column is assumed to contain words, whose pairs include the current word. With two
    columns these are the 19 templates of CRFsuite's chunking example.
    """
    templates = []
    for c, name in enumerate(columns):
        pairs = range(-1, 1) if c == 0 else range(-2, 2)
        templates += [f"{name}[{i}]" for i in range(-2, 3)]
        templates += [f"{name}[{i}]|{name}[{i + 1}]" for i in pairs]
        if c > 0:
            templates += [f"{name}[{i - 1}]|{name}[{i}]|{name}[{i + 1}]" for i in range(-1, 2)]
    return templates


def word_templates(columns: Sequence[str]) -> list[str]:
    """Return pairs of words, the first column, and the default templates of the others."""
    return default_templates(columns)[5:]  # all but single words


def tag_templates(columns: Sequence[str]) -> list[str]:
    """Return the default templates of all columns but the first, of words."""
    return default_templates(columns)[len(default_templates(columns[:1])) :]


def symbol_templates(columns: Sequence[str]) -> list[str]:
    """Return a window of eleven values, pairs in a window of seven, triples with the value."""
    templates = []
    for name in columns:
        templates += [f"{name}[{i}]" for i in range(-5, 6)]
        templates += [f"{name}[{i}]|{name}[{i + 1}]" for i in range(-3, 3)]
        templates += [f"{name}[{i - 1}]|{name}[{i}]|{name}[{i + 1}]" for i in range(-1, 2)]
    return templates


def template_lines(path: os.PathLike[str]) -> list[str]:
    """Return the lines of a template file; raise a ValueError if there is none."""
    file = Path(path)
    if not file.is_file():
        raise ValueError(
            f"templates names {str(file)!r}, which is {'no file' if file.exists() else 'missing'}; "
            "give the path of a template file, or a list of templates."
        )
    try:
        return as_lines(file.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(
            f"templates names the file {str(file)!r}, which is not UTF-8 ({error.reason} at byte "
            f"{error.start}); save it as UTF-8."
        ) from error


def parse_templates(templates: Any, columns: Sequence[str]) -> list[Template]:
    """Parse templates of any of the forms and check them against the columns.

    Raises
    ------
    ValueError
        If a template cannot be read, names an unknown column, reaches too far or is repeated.
    """
    if isinstance(templates, str):
        templates = as_lines(templates)
    if not isinstance(templates, Iterable):
        raise ValueError(f"templates must be a list of templates; got {templates!r}. {_FORMS}")
    for name in columns:
        if command_of(str(name)):
            raise ValueError(f"The column {name!r} has the name of a command; rename it.")
    parsed = [_parse(t, columns) for t in templates if not _is_skipped(t)]
    seen = set()
    for template in parsed:
        if (template.literals, template.parts) in seen:
            raise ValueError(f"Template {template.text!r} is given twice; remove one.")
        seen.add((template.literals, template.parts))
    return parsed


def _is_skipped(template: Any) -> bool:
    """Whether a line is blank, a comment, or a bare "B" (transitions, which every CRF has).

    A bare "B" may have a number and a name, as in "B01:all", and a comment.
    """
    if not isinstance(template, str):
        return False
    text = template.strip()
    if not text or text.startswith("#"):
        return True
    return re.fullmatch(r"[Bb]\d*(:[^\[\]%|]*)?(\s+#.*)?", text) is not None


def _parse(template: Any, columns: Sequence[str]) -> Template:
    if isinstance(template, str):
        text = template.strip()
        parsed = _parse_brackets(text) or _parse_commands(text, columns)
    else:
        parsed = _parse_tuple(template)
    if parsed is None:
        raise ValueError(f"Template {template!r} cannot be read. {_FORMS}")
    for column, offset in parsed.parts:
        if column not in columns and not (isinstance(template, str) and command_of(column)):
            raise ValueError(
                f"Template {template!r} names the column {column!r}; "
                f"the columns are {list(columns)}."
            )
        if abs(offset) > MAX_OFFSET:
            raise ValueError(
                f"Template {template!r} reaches {abs(offset)} rows away; at most {MAX_OFFSET} "
                "are allowed."
            )
    return parsed


def _joined(parts: tuple) -> Template:
    name = "|".join(f"{column}[{offset}]" for column, offset in parts)
    return Template(name, parts, (f"{name}=", *["|"] * (len(parts) - 1), ""))


def _parse_brackets(text: str) -> Template | None:
    matches = [_PART.fullmatch(part) for part in text.split("|")]
    if not all(matches):
        return None
    return _joined(tuple((m[1], int(m[2])) for m in matches))


def _parse_tuple(template: Any) -> Template | None:
    try:
        parts = tuple((column, offset) for column, offset in template)
    except (TypeError, ValueError):
        return None
    if not parts or not all(isinstance(c, str) and type(i) is int for c, i in parts):
        return None
    return _joined(parts)


def _parse_commands(text: str, columns: Sequence[str]) -> Template | None:
    if text[:1] not in ROLES:
        return None
    literals, commands = split_line(text)
    if any("%" in literal for literal in literals):
        return None
    parts = []
    for command, offset in commands:
        try:
            command.check()
        except ValueError as error:
            raise ValueError(f"Template {text!r} cannot be read: {error}.") from None
        if command.column >= len(columns):
            raise ValueError(
                f"Template {text!r} reads column number {command.column}; "
                f"the columns are {list(columns)}, counted from 0."
            )
        name = columns[command.column] if command.is_plain else command.name
        parts.append((name, offset))
    role = ROLES[text[0]]
    if not parts:  # every tagger has the plain transitions of "*"
        role = role & STATE or role
    return Template(text, tuple(parts), tuple(literals), role=role)
