"""Generated bibliographic references with labelled fields, and lexicons of the names in them.

authors, journals ──▶ fields ── style of reference ──▶ pieces, each with one label ──▶ tokens
"""

import random

import numpy as np
from sklearn.utils import check_random_state

from sklseq._lib.checks import check_number

from ._contacts_grammar import GRAMMAR as CONTACTS
from ._random_text import draw_generators, expand, read_grammar

_GRAMMAR = CONTACTS | read_grammar(
    """
field: Algebra Logic Optics Mechanics Statistics Linguistics Genetics Acoustics Geometry Graphs
    Robotics Control Vision Speech Memory Networks Inference Databases Compilers Automata Sampling
    Turbulence Plasma Polymers Neurons Markets Policy Soils Oceans Climate
quality: Applied Modern Discrete Computational Theoretical Comparative Experimental General
    Quantitative Clinical
thing: models letters notes systems transactions methods bounds proofs reviews signals trees rules
    journals features reports kernels patterns annals queries surfaces
how: fast robust sparse adaptive stable optimal incremental approximate distributed linear simple
    efficient
ordinal: 4th 5th 6th 7th 8th 9th 10th 11th 12th 13th 14th 15th 16th 17th 18th 19th 20th
""",
    """
author: {initials} {last_known} | {initials} {stem}{ending}
initials: {initial}. | {initial}. | {initial}. {initial}.
title: On {how} {thing} for {field} | {field} and {field}: a {how} approach | {how} {thing}
    | A {how} method for {thing} of {field} | The {thing} of {how} {field} revisited | {field}
    | Notes on the {thing} of {field} in {city_known} | A review of {how} {thing} and {thing}
    | Towards a journal of {how} {field}: {thing}, {thing} and {thing} | {field} without {thing}
    | How {how} are the {thing} in the theory of {field}?
journal: Journal of {field} | Journal of {quality} {field} | {quality} {field} | {field} Letters
    | Transactions on {field} and {field} | Annals of {field} | Notes on {quality} {field}
    | The {city_known} Review of {field} | {field} | {quality} {field} Reports
meeting: Proceedings of the {ordinal} Conference on {field} | Advances in {field}
    | Proc. {ordinal} Workshop on {quality} {field}
    | Proc. of the {city_known} Symposium on {field} and {field}
publisher: {last_known} {press} | {city_known} {press}
press: Press | Books | University Press | Verlag | and Sons | Publishers
""",
)


def make_citations(
    n: int = 300,
    *,
    random_state: int | np.random.RandomState | None = None,
    known: float = 0.6,
    return_lexicons: bool = False,
) -> tuple:
    """Generate references to articles, papers and books, with labels of their fields.

    Parameters
    ----------
    n : int, default=300
        Number of references.
    random_state : int, RandomState instance or None, default=None
        An int gives the same references in every call, and the first ones of a larger `n`.
    known : float between 0 and 1, default=0.6
        Fraction of the authors and of the journals that the lexicons contain.
    return_lexicons : bool, default=False
        Also return the lexicons.

    Returns
    -------
    X : list of list of str
        The tokens of each reference, with punctuation attached as in ``"Smith,"``.
    y : list of list of str
        Their IOB2 labels: author (each of them), title, journal, booktitle, volume, pages, date,
        publisher and location; "and", "In" and the like are O.
    lexicons : dict of str to list of str
        With ``return_lexicons``: entries "author" and "journal", with people and journals that
        occur and others that do not. The same for every `n`.

    Raises
    ------
    ValueError
        If `n` is not a positive integer or `known` not between 0 and 1.

    Notes
    -----
    Titles and names of journals share words, names are partly composed of syllables, punctuation
    between fields is missing now and then, and references have five styles: a single token does
    not determine where a field ends.

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
    check_number("known", known, 0, 1)
    random_state = check_random_state(random_state)
    (rng,) = draw_generators(1, "worlds", random_state)
    authors = sorted({_fill("{author}", rng) for _ in range(400)})
    journals = sorted({_fill("{journal}", rng) for _ in range(250)})
    references = [
        _Reference(authors, journals, rng_of_one)
        for rng_of_one in draw_generators(n, "references", random_state)
    ]
    X, y = [r.tokens for r in references], [r.labels for r in references]
    if not return_lexicons:
        return X, y
    lexicons = {}
    for name, occurring, n_others in (("author", authors, 400), ("journal", journals, 100)):
        others = {_fill(f"{{{name}}}", rng) for _ in range(n_others)}
        sample = rng.sample(occurring, round(known * len(occurring)))
        lexicons[name] = sorted(others.union(sample))
    return X, y, lexicons


def _fill(template: str, rng: random.Random) -> str:
    return expand(template, lambda symbol: rng.choice(_GRAMMAR[symbol]))


class _Reference:
    """Tokens and labels of one reference in a random style."""

    def __init__(self, authors: list[str], journals: list[str], rng: random.Random):
        self.rng, self.tokens, self.labels = rng, [], []
        self.authors = rng.sample(authors, rng.choice((1, 1, 2, 2, 3, 4)))
        self.title = _fill("{title}", rng)
        self.title = self.title[0].upper() + self.title[1:]
        self.year = str(rng.randint(1950, 2024))
        self.journal = rng.choice(journals)
        styles = (self.plain, self.year_first, self.meeting, self.book, self.terse)
        rng.choices(styles, (2, 1, 1, 1, 2))[0]()

    def add(self, label: str, text: str, mark: str = "") -> None:
        """Add a field, or words between fields (label "O"); one mark in four is left out."""
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
        self.add("booktitle", _fill("{meeting}", self.rng), ",")
        self.add_pages(",")
        self.add("location", _fill("{city_known}", self.rng), ",")
        self.add("date", self.year, ".")

    def book(self) -> None:
        self.add_authors(",", inverted=self.rng.random() < 0.5)
        self.add("title", self.title, ".")
        self.add("publisher", _fill("{publisher}", self.rng), ",")
        self.add("location", _fill("{city_known}", self.rng), ",")
        self.add("date", self.year, ".")

    def terse(self) -> None:
        self.add_authors(":")
        self.add("title", self.title)
        self.add("journal", self.journal)
        self.add("volume", self.volume())
        self.add("date", f"({self.year})")
        self.add_pages(".")
