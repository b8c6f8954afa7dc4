"""Invented bibliographic references, every token in a field, and lists of the names in them.

people, journals ──▶ fields ── a style of reference ──▶ pieces, each with one label ──▶ tokens
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ._contacts import check_n
from ._contacts_words import CITIES, ENDINGS, STEMS, SURNAMES

__all__ = ["make_citations"]


def _words(text: str) -> list[str]:
    return text.split()


_FIELDS = _words("""
    Algebra Logic Optics Mechanics Statistics Linguistics Genetics Acoustics Geometry
    Graphs Robotics Control Vision Speech Memory Networks Inference Databases Compilers Automata
    Sampling Turbulence Plasma Polymers Neurons Markets Policy Soils Oceans Climate
""")
_QUALITIES = _words("""
    Applied Modern Discrete Computational Theoretical Comparative Experimental General
    Quantitative Clinical
""")
_THINGS = _words("""
    models letters notes systems transactions methods bounds proofs reviews signals trees
    rules journals features reports kernels patterns annals queries surfaces
""")
_HOW = _words("""
    fast robust sparse adaptive stable optimal incremental approximate distributed linear
    simple efficient
""")
_TITLES = (
    "On {how} {thing} for {field}", "{field} and {field}: a {how} approach",
    "A {how} method for {thing} of {field}", "The {thing} of {how} {field} revisited",
    "{how} {thing}", "Notes on the {thing} of {field} in {city}",
    "A review of {how} {thing} and {thing}", "{field} without {thing}", "{field}",
    "Towards a journal of {how} {field}: {thing}, {thing} and {thing}",
    "How {how} are the {thing} in the theory of {field}?",
)  # fmt: skip
_JOURNALS = (
    "Journal of {field}", "Journal of {quality} {field}", "{quality} {field}", "{field} Letters",
    "Transactions on {field} and {field}", "Annals of {field}", "Notes on {quality} {field}",
    "The {city} Review of {field}", "{field}", "{quality} {field} Reports",
)  # fmt: skip
_MEETINGS = (
    "Proceedings of the {n} Conference on {field}", "Proc. {n} Workshop on {quality} {field}",
    "Proc. of the {city} Symposium on {field} and {field}", "Advances in {field}",
)  # fmt: skip
_PUBLISHERS = ("Press", "Books", "University Press", "Verlag", "and Sons", "Publishers")


def make_citations(
    n: int = 300,
    *,
    random_state: int | np.random.RandomState | None = None,
    known: float = 0.6,
    return_lexicons: bool = False,
) -> Any:
    """Generate references to articles, papers and books, whose fields are to be found.

    Parameters
    ----------
    n : int, default=300
        Number of references.
    random_state : int, RandomState instance or None, default=None
        An int gives the same references in every call, and the first ones of a larger `n`.
    known : float between 0 and 1, default=0.6
        Share of the authors and of the journals that the lexicons hold.
    return_lexicons : bool, default=False
        Return the lexicons, too.

    Returns
    -------
    X : list of list of str
        The tokens of each reference, marks attached as in ``"Smith,"``.
    y : list of list of str
        Their IOB2 labels: author (each of them), title, journal, booktitle, volume, pages, date,
        publisher and location; "and", "In" and the like are O.
    lexicons : dict of str to list of str
        With ``return_lexicons``: entries "author" and "journal", of people and journals that
        occur, and of others. The same for every `n`.

    Raises
    ------
    ValueError
        If `n` is not a positive integer or `known` not between 0 and 1.

    Notes
    -----
    Words of titles are words of journals' names, names are partly composed of syllables, marks
    between fields are missing now and then, and references have five styles: single tokens do not
    tell where a field ends.

    Examples
    --------
    >>> from sklseq.datasets import make_citations
    >>> X, y = make_citations(20, random_state=0)
    >>> len(X), [len(x) for x in X] == [len(labels) for labels in y]
    (20, True)
    >>> X, y, lexicons = make_citations(20, random_state=0, return_lexicons=True)
    >>> sorted(lexicons)
    ['author', 'journal']
    """
    n = check_n(n, "references")
    if not 0 <= known <= 1:
        raise ValueError(f"known must be between 0 and 1; got {known!r}.")
    random_state = check_random_state(random_state)
    world = _World(random.Random(int(random_state.randint(np.iinfo(np.int32).max))))
    seeds = random_state.randint(np.iinfo(np.int32).max, size=n)
    references = [_Reference(world, random.Random(int(seed))) for seed in seeds]
    X, y = [r.tokens for r in references], [r.labels for r in references]
    return (X, y, world.lexicons(known)) if return_lexicons else (X, y)


class _World:
    """The people who write, and the journals that print it."""

    def __init__(self, rng: random.Random):
        self.authors = sorted({_person(rng) for _ in range(400)})
        self.journals = sorted({_filled(rng.choice(_JOURNALS), rng) for _ in range(250)})
        self.seed = rng.random()

    def lexicons(self, known: float) -> dict[str, list[str]]:
        rng = random.Random(self.seed)
        others = {
            "author": [_person(rng) for _ in range(400)],
            "journal": [_filled(rng.choice(_JOURNALS), rng) for _ in range(100)],
        }
        return {
            name: sorted({*rng.sample(of_world, round(known * len(of_world))), *others[name]})
            for name, of_world in (("author", self.authors), ("journal", self.journals))
        }


def _person(rng: random.Random) -> str:
    initials = [f"{rng.choice('ABCDEFGHJKLMNPRSTVW')}." for _ in range(rng.choice((1, 1, 2)))]
    composed = rng.choice(STEMS) + rng.choice(ENDINGS)
    return " ".join([*initials, rng.choice(SURNAMES) if rng.random() < 0.4 else composed])


def _filled(template: str, rng: random.Random) -> str:
    words = {
        "field": _FIELDS, "quality": _QUALITIES, "thing": _THINGS, "how": _HOW, "city": CITIES,
        "n": [f"{k}th" for k in range(4, 21)],
    }  # fmt: skip
    while "{" in template:
        name = template[template.index("{") + 1 : template.index("}")]
        template = template.replace("{" + name + "}", rng.choice(words[name]), 1)
    return template


class _Reference:
    """One reference: pieces of text with their labels, in the order of a style."""

    def __init__(self, world: _World, rng: random.Random):
        self.rng, self.tokens, self.labels = rng, [], []
        self.authors = rng.sample(world.authors, rng.choice((1, 1, 2, 2, 3, 4)))
        self.title = _filled(rng.choice(_TITLES), rng)
        self.title = self.title[0].upper() + self.title[1:]
        self.year = str(rng.randint(1950, 2024))
        self.journal = rng.choice(world.journals)
        styles = (self.plain, self.year_first, self.meeting, self.book, self.terse)
        rng.choices(styles, (2, 1, 1, 1, 2))[0]()

    def add(self, label: str, text: str, mark: str = "") -> None:
        """A field or, labelled O, words between fields; one mark in four is forgotten."""
        tokens = text.split()
        if mark and self.rng.random() < 0.75 and not tokens[-1].endswith((".", "?")):
            tokens[-1] += mark
        self.tokens += tokens
        first = ["O" if label == "O" else f"B-{label}"]
        self.labels += first + ["O" if label == "O" else f"I-{label}"] * (len(tokens) - 1)

    def add_authors(self, end: str, inverted: bool = False) -> None:
        names = [
            f"{name.split()[-1]}, {' '.join(name.split()[:-1])}" if inverted else name
            for name in self.authors
        ]
        for name in names[:-1]:
            self.add("author", name, ",")
        if len(names) > 1 and self.rng.random() < 0.8:
            self.add("O", self.rng.choice(("and", "and", "&")))
        self.add("author", names[-1], end)

    def add_pages(self, end: str) -> None:
        first = self.rng.randint(1, 900)
        sign = self.rng.choice(("-", "-", "--"))
        prefix = self.rng.choice(("", "", "pp. ", "pages "))
        self.add("pages", f"{prefix}{first}{sign}{first + self.rng.randint(1, 40)}", end)

    def volume(self) -> str:
        number = self.rng.choice(("", f"({self.rng.randint(1, 6)})"))
        return f"{self.rng.choice(('', '', 'vol. '))}{self.rng.randint(1, 80)}{number}"

    def plain(self) -> None:
        self.add_authors(".")
        self.add("title", self.title, ".")
        self.add("journal", self.journal, ",")
        self.add("volume", self.volume(), self.rng.choice((",", ":")))
        self.add_pages(",")
        self.add("date", self.year, ".")

    def year_first(self) -> None:
        self.add_authors("", inverted=True)
        self.add("date", f"({self.year})", ".")
        self.add("title", self.title, ".")
        self.add("journal", self.journal, self.rng.choice(("", ",")))
        self.add("volume", self.volume(), ",")
        self.add_pages(".")

    def meeting(self) -> None:
        self.add_authors(self.rng.choice((".", ",")))
        self.add("title", self.title, self.rng.choice((".", ",")))
        self.add("O", "In")
        self.add("booktitle", _filled(self.rng.choice(_MEETINGS), self.rng), ",")
        self.add_pages(",")
        self.add("location", self.rng.choice(CITIES), ",")
        self.add("date", self.year, ".")

    def book(self) -> None:
        self.add_authors(",", inverted=self.rng.random() < 0.5)
        self.add("title", self.title, ".")
        name = self.rng.choice((*SURNAMES, *CITIES))
        self.add("publisher", f"{name} {self.rng.choice(_PUBLISHERS)}", ",")
        self.add("location", self.rng.choice(CITIES), ",")
        self.add("date", self.year, ".")

    def terse(self) -> None:
        self.add_authors(":")
        self.add("title", self.title)
        self.add("journal", self.journal)
        self.add("volume", self.volume())
        self.add("date", f"({self.year})")
        self.add_pages(".")
