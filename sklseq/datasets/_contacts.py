"""Invented documents with contact information among prose, every token labelled.

    document ── templates ── grammar ──▶ text pieces, each with one label ──▶ tokens

`_contacts_grammar` says what can be written, this file draws from it. Each document has its own
random numbers, so it does not depend on how many others are drawn.
"""

import operator
import random
import re
import unicodedata

import numpy as np
from sklearn.utils import check_random_state

from . import _contacts_grammar as g

# Mail and web addresses, numbers such as 3.50 and 12.3.2004, words, runs of one punctuation mark.
_TOKEN = re.compile(
    r"""\n | [^\s<>()]*@[^\s<>()]*\w | (?:https?://|www\.)[^\s<>()]*[\w/]
    | [\w-]+(?:\.[\w-]+)*\.(?:example|com|org|net)\b
    | \d+(?:[.,:]\d+)+ | \w+(?:['’-]\w+)* | ([^\w\s])\1*""",
    re.VERBOSE,
)
_SYMBOL = re.compile(r"\{([a-z_]+)\}")
_FIELD = re.compile(r"\{([A-Z]+)\}")
_OPTION = re.compile(r"\[([^][]*)\]")
_MISREAD = {"l": "1", "o": "0", "i": "l", "e": "c", "m": "rn", "O": "0", "I": "l", "S": "5"}


def make_contacts(
    n: int = 500,
    *,
    random_state: int | np.random.RandomState | None = None,
    separation: float = 0.7,
) -> tuple[list[dict[str, list[str]]], list[list[str]]]:
    """Generate documents in which contact information is to be found.

    E-mails, letters, forwarded threads, web pages, meeting notes and orders, with the names, jobs,
    companies, addresses, telephone numbers and so on of invented people: the task and the 21
    labels of [1]_, without anybody's data.

    Parameters
    ----------
    n : int, default=500
        Number of documents.
    random_state : int, RandomState instance or None, default=None
        An int gives the same documents in every call, and the first ones of a larger `n`.
    separation : float between 0 and 1, default=0.7
        How clearly contact details stand out from prose: the probability that a cue names a field
        ("Tel:", "E-mail:"). Greetings and headings that open or close the details ("Kind
        regards,", "Contact:") become rarer with it, from 1 and 0.8 down to 1/2 and 0.3.

    Returns
    -------
    X : list of dict
        One dict a document, of two equally long lists: ``"w"``, the tokens, and ``"newline"``,
        ``"1"`` for the first token of a line, else ``"0"``. Mail and web addresses are one token,
        other punctuation stands alone.
    y : list of list of str
        The label of each token: NOTCONTACT, BEGINCONTACT, ENDCONTACT, FIRSTNAME, MIDDLENAME,
        LASTNAME, NICKNAME, SUFFIX, TITLE, JOBTITLE, COMPANYNAME, DEPARTMENT, ADDRESSLINE, CITY,
        STATE, COUNTRY, POSTALCODE, PHONENUMBER, EMAIL, INSTANTMESSAGE or WEBPAGE.

    Raises
    ------
    ValueError
        If `n` is not a positive integer or `separation` not between 0 and 1.

    Notes
    -----
    BEGINCONTACT labels the cue that opens contact details ("Kind regards ,", "Please contact"),
    ENDCONTACT the one that closes them ("--", "Sent from my phone"); either may be missing. Words
    that only name a field ("Tel :") and punctuation between fields are NOTCONTACT. So is all that
    nobody offers as contact details: mail headers, people mentioned in passing, a sign-off with a
    mere name, hotlines, order numbers.

    Half of the documents have less than about 150 tokens, some more than a thousand. Names and
    places are partly composed of syllables, so new documents hold new words; one token in a
    hundred or so has a spelling mistake, more in documents that pass for scanned ones. Telephone
    numbers are from ranges reserved for fiction, domains from those reserved by RFC 2606.

    References
    ----------
    .. [1] M. Narasimhan, P. Viola and M. Shilman, "Online decoding of Markov models under latency
       constraints", ICML 2006.

    Examples
    --------
    >>> from sklseq.datasets import make_contacts
    >>> X, y = make_contacts(20, random_state=0)
    >>> len(X), sorted(X[0])
    (20, ['newline', 'w'])
    >>> len(X[0]["w"]) == len(X[0]["newline"]) == len(y[0])
    True
    """
    n = check_n(n, "documents")
    if not 0 <= separation <= 1:
        raise ValueError(f"separation must be between 0 and 1; got {separation!r}.")
    seeds = check_random_state(random_state).randint(np.iinfo(np.int32).max, size=n)
    documents = [_Document(random.Random(int(seed)), separation) for seed in seeds]
    for document in documents:
        kinds, weights = zip(*_KINDS.items())
        document.rng.choices(kinds, weights)[0](document)
    X = [{"w": document.tokens, "newline": document.newline} for document in documents]
    return X, [document.labels for document in documents]


def check_n(n: int, what: str) -> int:
    """The number of `what` to generate, as int."""
    try:
        value = operator.index(n)
    except TypeError:
        value = 0
    if value < 1:
        raise ValueError(f"n, the number of {what}, must be a positive integer; got {n!r}.")
    return value


class _Document:
    """A text in the making: its tokens so far, and the contact whose details are written.

    Attributes
    ----------
    fields : dict
        Text of each {LABEL} of the contact at hand.
    symbols : dict
        What {symbol} means for this contact, in place of the alternatives of the grammar.
    quote : str
        What stands before each line: ">" in a quoted message.
    """

    def __init__(self, rng: random.Random, separation: float):
        self.rng = rng
        self.separation = separation
        self.noise = 0.06 if rng.random() < 0.08 else 0.008  # scanned paper, or mere typing errors
        self.tokens, self.newline, self.labels = [], [], []
        self.fields, self.symbols = {}, {}
        self.quote = ""
        self._at_line_start = True

    def fill(self, template: str) -> str:
        """Expand all {symbol} and #, but no {LABEL}."""
        text = _SYMBOL.sub(self._expand, template)
        if "#" in text:
            text = "".join([self.rng.choice("0123456789") if c == "#" else c for c in text])
        return text

    def _expand(self, match: re.Match) -> str:
        symbol = match[1]
        if symbol in self.symbols:
            return self.fill(self.symbols[symbol])
        if symbol.endswith("_cue") and self.rng.random() > self.separation:
            return ""
        chosen = self.rng.choice(g.GRAMMAR[symbol])
        return self.fill(chosen) if "{" in chosen or "#" in chosen else chosen

    def write(self, template: str, case=None) -> None:
        """Write a template, each field with its own label, in upper or lower case if asked."""
        text = self.fill(template)
        while "[" in text:  # innermost options first
            text = _OPTION.sub(self._keep_option, text)
        pieces = _FIELD.split(text)  # plain text, label, plain text, label, ..., plain text
        for position, piece in enumerate(pieces):
            if position % 2:
                value = self.fill(self.fields.get(piece, ""))
                self._write_tokens(case(value) if case else value, piece)
            elif piece:
                self._write_tokens(case(piece) if case else piece, "NOTCONTACT")

    def _keep_option(self, match: re.Match) -> str:
        complete = all(label in self.fields for label in _FIELD.findall(match[1]))
        return match[1] if complete else ""

    def _write_tokens(self, text: str, label: str) -> None:
        for match in _TOKEN.finditer(text):
            token = match[0]
            if token == "\n":
                self._at_line_start = True
                continue
            if self._at_line_start and self.quote:
                self._append(self.quote, "NOTCONTACT")
            self._append(self._misspell(token), label)

    def _append(self, token: str, label: str) -> None:
        self.tokens.append(token)
        self.newline.append("1" if self._at_line_start else "0")
        self.labels.append(label)
        self._at_line_start = False

    def _misspell(self, token: str) -> str:
        """Rarely spoil a word; digits stay, numbers would leave the ranges of fiction."""
        if self.rng.random() > self.noise or len(token) < 4 or not token.isalpha():
            return token
        at = self.rng.randrange(1, len(token) - 1)
        kind = self.rng.choice(("drop", "swap", "misread"))
        if kind == "drop":
            return token[:at] + token[at + 1 :]
        if kind == "swap":
            return token[:at] + token[at + 1] + token[at] + token[at + 2 :]
        return token[:at] + _MISREAD.get(token[at], token[at]) + token[at + 1 :]

    def introduce(self) -> None:
        """Draw a new contact: the person whose details the next block holds."""
        country = self.rng.choices(tuple(g.COUNTRIES), tuple(g.COUNTRIES.values()))[0]
        self.symbols = {}
        for symbol in ("me_first", "me_last", "me_company"):
            self.symbols[symbol] = self.fill(f"{{{symbol}}}")
            self.symbols[symbol.replace("me", "slug")] = _slug(self.symbols[symbol])
        self.symbols["me_domain"] = self.fill("{me_domain}")
        self.fields = {
            label: self.fill(template)
            for label, (probability, template) in g.FIELDS.items()
            if self.rng.random() < probability
        }
        self._add_phone_and_address(country)

    def _add_phone_and_address(self, country: str) -> None:
        chance = self.rng.random
        details = {"EMAIL", "INSTANTMESSAGE", "WEBPAGE"} & self.fields.keys()
        if chance() < g.PHONE_PROBABILITY or not details:
            # Expanded anew at each use: telephone, fax and mobile differ.
            self.fields["PHONENUMBER"] = f"{{{country}_phone}}"
        layout = g.ADDRESS_LAYOUTS[country]
        self.symbols |= {"address": layout, "address_in_line": layout.replace("\n", ", ")}
        if chance() < g.ADDRESS_PROBABILITY:
            parts = {"ADDRESSLINE": "street", "CITY": "city", "POSTALCODE": "postal"}
            if chance() < g.STATE_PROBABILITY.get(country, 0):
                parts["STATE"] = "state"
            if chance() < g.COUNTRY_PROBABILITY:
                parts["COUNTRY"] = "country"
            for label, part in parts.items():
                self.fields[label] = self.fill(f"{{{country}_{part}}}")

    def write_block(self, kind: str) -> None:
        """Write the details of a new contact, opened and closed by cues of this kind."""
        self.introduce()
        choice, chance = self.rng.choice, self.rng.random
        if chance() < (1 + self.separation) / 2:
            self.fields["BEGINCONTACT"] = choice(g.BEGIN_CUES[kind])
        if chance() < 0.3 + self.separation / 2:
            self.fields["ENDCONTACT"] = choice(g.END_CUES[kind])
        if kind == "inline":
            self.write(f"[{{BEGINCONTACT}} ]{choice(g.INLINE)} [{{ENDCONTACT}}]\n")
            return
        # A name without any way to reach its bearer would be no contact.
        reach = [lines for lines in g.REACH_LINES if self.fields.keys() & _FIELD.findall(lines)]
        lines = [choice(g.ROLE_LINES), choice(g.PLACE_LINES), choice(reach)]
        if chance() < 0.25:
            self.rng.shuffle(lines)
        lines.insert(chance() < 0.1, choice(g.NAME_LINES))
        case = self.rng.choices((None, str.upper, str.lower), (0.86, 0.07, 0.07))[0]
        self.write("[{BEGINCONTACT}\n]" + "".join(lines) + "\n[{ENDCONTACT}\n]", case)

    def write_prose(self, sentences: float) -> None:
        """Write about so many sentences; few documents have very many."""
        for _ in range(round(self.rng.lognormvariate(0, 0.95) * sentences)):
            if self.rng.random() < 0.02:
                self.write_block("inline")
            else:
                self.write("{sentence}" + self.rng.choice((" ", " ", "\n")))
        self.write("\n")


def _slug(text: str) -> str:
    """Return the ASCII letters of a name, as in a mail address."""
    letters = unicodedata.normalize("NFKD", text.lower().replace("ß", "ss"))
    return "".join(c for c in letters if c.isascii() and c.isalpha())


def _email(document: _Document) -> None:
    if document.rng.random() < 0.4:
        document.write("{header}\n")
    document.write("{greeting}\n")
    document.write_prose(10)
    if document.rng.random() < 0.75:
        document.write_block("signature")
    else:
        document.write("{sign_off}\n{me_first}\n")
    if document.rng.random() < 0.2:
        document.write_prose(1)


def _letter(document: _Document) -> None:
    if document.rng.random() < 0.6:
        document.write_block("card")
    document.write("{date}\n{greeting}\n")
    document.write_prose(10)
    document.write_block("signature")


def _thread(document: _Document) -> None:
    """Write an e-mail that holds others, some of them quoted."""
    _email(document)
    while document.rng.random() < 0.65:
        document.quote = document.rng.choice(("", "", ">", "|"))
        document.write("\n{separator_line}{header}")
        _email(document)


def _web_page(document: _Document) -> None:
    """Write a page with a list of contacts: sometimes one, rarely a whole staff directory."""
    document.write("{heading}\n")
    document.write_prose(6)
    document.write("{heading}\n")
    for _ in range(1 + round(document.rng.lognormvariate(0.3, 1.2))):
        document.write_block("card")
    document.write_prose(3)


def _notes(document: _Document) -> None:
    document.write("{heading}\n")
    for _ in range(document.rng.randrange(3, 9)):
        document.write("{minute}\n")
        if document.rng.random() < 0.15:
            document.write_block("inline")
    document.write_prose(5)
    if document.rng.random() < 0.3:
        document.write_block("card")


def _order(document: _Document) -> None:
    """Write an order or news letter, full of numbers; sometimes without any contact."""
    document.write("{company}\n{subject}\n")
    for _ in range(document.rng.randrange(2, 8)):
        document.write("{order_line}\n")
    if document.rng.random() < 0.6:
        document.write_block("card")
    document.write_prose(5)


_KINDS = {_email: 35, _letter: 12, _thread: 18, _web_page: 15, _notes: 10, _order: 10}
