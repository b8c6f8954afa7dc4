"""Commands of templates: values of a column, changed or read at an absolute place.

Beside ``%x[-1,0]``, the value of column 0 one row before, Wapiti's lines have

* ``%t[-1,0,"^\\u"]``: "true" or "false", whether a regular expression is found in the value;
* ``%m[-1,0,"^.?.?"]``: the text that it matches, empty if it is not found;
* ``%X``, ``%T``, ``%M``: the same in lower case;
* ``%x[@1,0]``: the value in the first row of the sequence, ``@-1`` in the last.

The values of a command, whatever the row it is read from, are a column of their own, whose name is
the command without the number of rows: ``%t[0,"^\\u"]``, ``%x[@1,0]``.
"""

import math
import re
from functools import lru_cache
from typing import NamedTuple

_COMMAND = re.compile(
    r"%(?P<letter>[xtmXTM])\[\s*(?P<at>@?)\s*(?P<offset>[+-]?\d+)\s*,\s*(?P<column>\d+)\s*"
    r'(?:,\s*"(?P<regexp>(?:\\.|[^"\\])*)"\s*)?\]',
    re.DOTALL,
)
_NAME = re.compile(r'%([xtmXTM])\[(?:@([+-]?\d+),)?(\d+)(?:,"(.*)")?\]', re.DOTALL)
# Classes of characters as in the C locale: letters, digits and punctuation of ASCII.
_CLASSES = {
    "a": "A-Za-z", "d": "0-9", "l": "a-z", "p": "!-/:-@\\[-`{-~", "s": " \\t-\\r", "u": "A-Z",
    "w": "A-Za-z0-9",
}  # fmt: skip
_CLASSES.update({letter.upper(): "^" + held for letter, held in _CLASSES.items()})
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
# Names of the rows before and after a sequence: the fourth and all beyond share the last two.
BEFORE = ("_x-1", "_x-2", "_x-3", "_x-4", "_x-#")
AFTER = tuple(text.replace("-", "+") for text in BEFORE)


class Command(NamedTuple):
    """Function of a value of a column, and the place at which the value is read.

    Attributes
    ----------
    letter : {"x", "t", "m", "X", "T", "M"}
    place : int or None
        Row of the sequence, 1 being the first and -1 the last; None: relative to the row.
    column : int
    regexp : str or None
        In Wapiti's syntax, of all but "x" and "X".
    """

    letter: str
    place: int | None
    column: int
    regexp: str | None

    @property
    def is_plain(self) -> bool:
        """Whether the values are those of the column."""
        return self.letter == "x" and self.place is None

    @property
    def name(self) -> str:
        place = "" if self.place is None else f"@{self.place},"
        regexp = "" if self.regexp is None else f',"{self.regexp}"'
        return f"%{self.letter}[{place}{self.column}{regexp}]"

    def check(self) -> None:
        """Raise a ValueError if the command cannot be computed."""
        if (self.regexp is None) != (self.letter in "xX"):
            needs = "takes no" if self.regexp is not None else "needs a"
            raise ValueError(f'"%{self.letter}" {needs} regular expression')
        if self.place == 0:
            raise ValueError("absolute places count from @1, the first row, or @-1, the last")
        if self.regexp is not None:
            translated(self.regexp)

    def field(self, before: float, after: float) -> tuple[float, float]:
        """Numbers of rows on which a row depends, if it does on those beside the command."""
        if self.place is None:
            return before, after
        if self.place > 0:
            return math.inf, max(after, self.place - 1)
        return max(before, -1 - self.place), math.inf

    def values(self, texts: list[str]) -> list[str]:
        """The values of the command for values of its column."""
        if self.regexp is not None:
            found = map(translated(self.regexp).search, texts)
            if self.letter in "tT":
                return ["false" if match is None else "true" for match in found]
            texts = ["" if match is None else match[0] for match in found]
        return [text.translate(_LOWER) for text in texts] if self.letter.isupper() else texts


def split_line(text: str) -> tuple[list[str], list[tuple[Command, int]]]:
    """Return the literals of a line, and between them its commands with their offsets."""
    literals, found, end = [], [], 0
    for match in _COMMAND.finditer(text):
        literals.append(text[end : match.start()])
        end, offset = match.end(), int(match["offset"])
        place = offset if match["at"] else None
        command = Command(match["letter"], place, int(match["column"]), match["regexp"])
        found.append((command, 0 if match["at"] else offset))
    return [*literals, text[end:]], found


def command_of(name: str) -> Command | None:
    """The command whose values a column of this name holds; None if it is a column of X."""
    match = _NAME.fullmatch(name) if name.startswith("%") else None
    if match is None:
        return None
    place = None if match[2] is None else int(match[2])
    return Command(match[1], place, int(match[3]), match[4])


@lru_cache(256)
def translated(regexp: str) -> re.Pattern:
    """A regular expression of Wapiti as one of Python, for ``search``.

    It has characters, "." for all of them, classes "\\a", "\\d", "\\l", "\\p", "\\s", "\\u" and
    "\\w", in upper case their complements, "^" at its begin and "$" at its end for those of the
    text, and after a character "?" (once, or else not) and "*" (as few times as possible).
    """
    at, translation = 0, ""
    if regexp.startswith("^"):
        at, translation = 1, r"\A"
    while at < len(regexp):
        if regexp[at] in "*?":
            raise ValueError(
                f'the regular expression "{regexp}" repeats nothing by {regexp[at]!r}; write '
                rf"'\{regexp[at]}' for the character"
            )
        if regexp[at:] == "$":
            translation += r"\Z"
            break
        size = 2 if regexp[at] == "\\" else 1
        translation += _character(regexp[at : at + size])
        at += size
        if regexp[at : at + 1] in ("*", "?"):
            translation += "*?" if regexp[at] == "*" else "?"
            at += 1
    return re.compile(translation, re.DOTALL)


def _character(text: str) -> str:
    # A character, class or escaped character of Wapiti's syntax in Python's.
    if text == ".":
        return "."
    if text[1:] in _CLASSES:
        return f"[{_CLASSES[text[1:]]}]"
    return re.escape(text[-1])
