"""Generated documents of prose and contact details, with a label for each token.

    document ── templates ── grammar ──▶ text pieces, each with one label ──▶ tokens

Templates are those of `_random_text`, with two more notations:

* ``{LABEL}`` becomes that field of the current contact, and its tokens get this label; all other
  tokens are NOTCONTACT;
* ``[...]`` is left out if the contact lacks a field inside it.
"""

import random
import re
import unicodedata

import numpy as np

from sklseq._lib.checks import check_number

from ._contacts_grammar import ADDRESS, FIELDS, GRAMMAR, REACH
from ._random_text import draw_generators, expand

# Mail and web addresses, numbers such as 3.50 and 12.3.2004, words, runs of one punctuation mark.
_TOKEN = re.compile(
    r"""\n | [^\s<>()]*@[^\s<>()]*\w | (?:https?://|www\.)[^\s<>()]*[\w/]
    | [\w-]+(?:\.[\w-]+)*\.(?:example|com|org|net)\b
    | \d+(?:[.,:]\d+)+ | \w+(?:['’-]\w+)* | ([^\w\s])\1*""",
    re.VERBOSE,
)
_FIELD = re.compile(r"\{([A-Z]+)\}")
_OPTION = re.compile(r"\[([^][]*)\]")


def make_contacts(
    n: int = 500,
    *,
    random_state: int | np.random.RandomState | None = None,
    separation: float = 0.7,
) -> tuple[list[dict[str, list[str]]], list[list[str]]]:
    """Generate documents that contain contact information.

    E-mails, letters, web pages, minutes of meetings and orders, with the names, jobs, companies,
    addresses, telephone numbers and so on of invented people: the task and the 21 labels of [1]_,
    without data of real people.

    Parameters
    ----------
    n : int, default=500
        Number of documents.
    random_state : int, RandomState instance or None, default=None
        An int gives the same documents in every call, and the first ones of a larger `n`.
    separation : float between 0 and 1, default=0.7
        How clearly contact details differ from prose: the probability that a cue names a field
        ("Tel:", "E-mail:"). Greetings and headings that open or close the details ("Kind
        regards,", "Contact:") become rarer with it, from 1 and 0.8 down to 1/2 and 0.3.

    Returns
    -------
    X : list of dict
        One dict for each document, of two equally long lists: ``"w"``, the tokens, and
        ``"newline"``, ``"1"`` for the first token of a line, else ``"0"``. Mail and web addresses
        are one token, other punctuation is separate.
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
    that only name a field ("Tel :") and punctuation between fields are NOTCONTACT. So are details
    that are not offered as a contact: mail headers, people mentioned in passing, a sign-off with
    a mere name, hotlines, order numbers.

    Half of the documents have less than about 150 tokens, some more than a thousand. Names and
    places are partly composed of syllables, so new documents contain new words; one word in a
    hundred or so has a spelling mistake. Telephone numbers are from ranges reserved for fiction,
    domains from those reserved by RFC 2606.

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
    check_number("separation", separation, 0, 1)
    generators = draw_generators(n, "documents", random_state)
    documents = [_Document(rng, separation) for rng in generators]
    for document in documents:
        document.rng.choices((_write_messages, _write_page), (0.65, 0.35))[0](document)
    X = [{"w": document.tokens, "newline": document.newline} for document in documents]
    return X, [document.labels for document in documents]


class _Document:
    """The tokens written so far, and the contact whose details are being written."""

    def __init__(self, rng: random.Random, separation: float):
        self.rng = rng
        self.separation = separation
        self.tokens, self.newline, self.labels = [], [], []
        self.fields = {}  # template of each {LABEL} of the current contact
        self.symbols = {}  # templates of the current contact, which replace those of GRAMMAR
        self.quote = ""  # first token of each line: ">" in a quoted message
        self._at_line_start = True

    def write(self, template: str) -> None:
        """Write a template, each field with its own label."""
        text = self._fill(template)
        while "[" in text:  # innermost options first
            text = _OPTION.sub(self._keep_option, text)
        pieces = _FIELD.split(text)  # plain text, label, plain text, label, ..., plain text
        for plain, label in zip(pieces[::2], [*pieces[1::2], None]):
            self._write_tokens(plain, "NOTCONTACT")
            if label:
                self._write_tokens(self._fill(self.fields.get(label, "")), label)

    def _fill(self, template: str) -> str:
        return expand(template, self._choose)

    def _choose(self, symbol: str) -> str:
        if symbol in self.symbols:
            return self.symbols[symbol]
        if symbol.endswith("_cue") and self.rng.random() > self.separation:
            return ""
        return self.rng.choice(GRAMMAR[symbol])

    def _keep_option(self, match: re.Match) -> str:
        return match[1] if self.fields.keys() >= set(_FIELD.findall(match[1])) else ""

    def _write_tokens(self, text: str, label: str) -> None:
        for match in _TOKEN.finditer(text):
            if match[0] == "\n":
                self._at_line_start = True
                continue
            if self._at_line_start and self.quote:
                self._append(self.quote, "NOTCONTACT")
            self._append(self._misspell(match[0]), label)

    def _append(self, token: str, label: str) -> None:
        self.tokens.append(token)
        self.newline.append("1" if self._at_line_start else "0")
        self.labels.append(label)
        self._at_line_start = False

    def _misspell(self, token: str) -> str:
        """Swap two letters of one word in a hundred; digits stay reserved numbers."""
        if self.rng.random() > 0.01 or len(token) < 4 or not token.isalpha():
            return token
        at = self.rng.randrange(1, len(token) - 1)
        return token[:at] + token[at + 1] + token[at] + token[at + 2 :]

    def _draw_contact(self) -> None:
        """Draw the person whose details the next block contains."""
        self.symbols, self.fields = {}, {}
        country = self._choose("code")
        for symbol in ("firstname", "lastname", "companyname", "domain"):
            self.symbols[symbol] = self._fill(f"{{{symbol}}}")
            self.symbols["slug_" + symbol] = _slug(self.symbols[symbol])
        address = self._choose(f"{country}_address")
        self.symbols |= {"address": address, "address_in_line": address.replace("\n", ", ")}
        for label, chance in FIELDS.items():
            own, general = f"{country}_{label.lower()}", label.lower()
            symbol = own if own in GRAMMAR else general
            if symbol in GRAMMAR and self.rng.random() < chance:
                self.fields[label] = self._fill(f"{{{symbol}}}")
        if self.rng.random() < 0.5:
            self.fields = {k: v for k, v in self.fields.items() if k not in ADDRESS}
        if self.rng.random() < 0.8 or not REACH & self.fields.keys():
            # A template, filled at each use, so that telephone, fax and mobile numbers differ.
            self.fields["PHONENUMBER"] = f"{{{country}_phonenumber}}"

    def write_block(self, kind: str) -> None:
        """Write the details of a new contact, opened and closed by cues of this kind."""
        self._draw_contact()
        for label, chance in (("BEGIN", 0.5), ("END", 0.3)):
            if self.rng.random() < chance + self.separation / 2:
                self.fields[f"{label}CONTACT"] = self._choose(f"{kind}_{label.lower()}")
        if kind == "inline":
            self.write("[{BEGINCONTACT} ]{inline} [{ENDCONTACT}]\n")
            return
        # Every contact has a telephone number, or a mail, chat or web address.
        reach = [t for t in GRAMMAR["reach_lines"] if self.fields.keys() & _FIELD.findall(t)]
        lines = ["{role_lines}", "{place_lines}", self.rng.choice(reach)]
        if self.rng.random() < 0.25:
            self.rng.shuffle(lines)
        self.write("[{BEGINCONTACT}\n]{name_line}\n" + "".join(lines) + "\n[{ENDCONTACT}\n]")

    def write_prose(self, median: float) -> None:
        """Write sentences; their number is log-normal, with this median."""
        for _ in range(round(self.rng.lognormvariate(0, 1.1) * median)):
            if self.rng.random() < 0.02:
                self.write_block("inline")
            else:
                self.write("{sentence}" + self.rng.choice((" ", " ", "\n")))
        self.write("\n")


def _slug(text: str) -> str:
    """Return the ASCII letters of a name, as in a mail address."""
    letters = unicodedata.normalize("NFKD", text.lower().replace("ß", "ss"))
    return "".join(c for c in letters if c.isascii() and c.isalpha())


def _write_messages(document: _Document) -> None:
    """Write an e-mail or a letter, and sometimes the earlier messages that it answers."""
    chance = document.rng.random
    if chance() < 0.15:
        document.write_block("card")
    while True:
        document.write("{header}\n{greeting}\n")
        document.write_prose(6)
        if chance() < 0.75:
            document.write_block("signature")
        else:
            document.write("{signature_begin}\n{firstname}\n")
        if chance() < 0.5:
            return
        document.quote = document.rng.choice(("", "", ">", "|"))
        document.write("\n{separator_line}\n")


def _write_page(document: _Document) -> None:
    """Write a web page, minutes or an order, sometimes with a list of contacts."""
    document.write("{heading}\n")
    document.write_prose(5)
    line = document.rng.choice(("{minute}\n", "{order_line}\n", "{sentence}\n"))
    for _ in range(document.rng.randrange(9)):
        document.write(line)
        if document.rng.random() < 0.08:
            document.write_block("inline")
    for _ in range(round(document.rng.lognormvariate(0.2, 1.3))):
        document.write_block("card")
    document.write_prose(3)
