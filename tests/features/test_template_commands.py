"""Commands of Wapiti's templates against a matcher and a reader of places written for the tests."""

import pickle
import string

import numpy as np
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, OnlineDecoder, deployment, runtime
from sklseq.__main__ import main
from sklseq.features import TemplateFeatures, WindowFeatures, receptive_field
from sklseq.features._commands import translated

TESTS = {
    "a": str.isalpha, "d": str.isdigit, "l": str.islower, "u": str.isupper, "w": str.isalnum,
    "p": set(string.punctuation).__contains__,
    "s": set(" \t\n\v\f\r").__contains__,
}  # fmt: skip


def fits(item, letter):
    """Whether a letter is one that an item, such as ``\\u``, stands for."""
    if item[1:].lower() in TESTS and len(item) == 2:
        found = letter.isascii() and TESTS[item[1].lower()](letter)
        return found if item[1].islower() else not found
    return item == "." or item[-1] == letter


def ends(items, text, at):
    """The ends of the matches that begin at a place, in the order of preference."""
    if not items:
        yield at
        return
    (item, repeat), rest = items[0], items[1:]
    if item == "$" and not rest and not repeat:
        if at == len(text):
            yield at
        return
    one_more = at < len(text) and fits(item, text[at])
    if repeat == "*":
        yield from ends(rest, text, at)
        if one_more:
            yield from ends(items, text, at + 1)
        return
    if one_more:
        yield from ends(rest, text, at + 1)
    if repeat == "?":
        yield from ends(rest, text, at)


def match(anchored, items, text):
    for first in range(1 if anchored else len(text) + 1):
        for end in ends(items, text, first):
            return text[first:end]
    return None


def draw_regexp(rng):
    """(whether it begins with ^, items with their repetitions)."""
    escaped = ["\\" + c for c in 'adlpsuwADLPSUW.*?^$"\\zn|(']
    atoms = [*"abAB1-_.^$|()[]{}+&~", "é", *escaped]
    items = [(rng.choice(atoms), rng.choice(["", "", "*", "?"])) for _ in range(rng.integers(0, 5))]
    items += [("$", "")] * (rng.random() < 0.4)
    return rng.random() < 0.4, items


def test_classes_of_all_letters():
    letters = [chr(code) for code in [*range(128), 0xE9, 0xC9, 0x661, 0x2028]]
    for name in [*"adlpsuwADLPSUW", ".", "*", "\\"]:
        found = [translated("\\" + name).search(letter) is not None for letter in letters]
        assert found == [fits("\\" + name, letter) for letter in letters], name


def text_of(anchored, items):
    return "^" * anchored + "".join(item + repeat for item, repeat in items)


def draw_token(rng, longest=6):
    return "".join(rng.choice([*'abAB1.-_^$|*?+"(\\[]é \n']) for _ in range(rng.integers(longest)))


def test_regular_expressions_against_a_matcher():
    rng, n_found = np.random.default_rng(0), 0
    for _ in range(1000):
        anchored, items = draw_regexp(rng)
        if not anchored and items and items[0][0] == "^":
            items[0] = ("\\^", items[0][1])  # at its begin, "^" is no character
        regexp = text_of(anchored, items)
        for token in [draw_token(rng) for _ in range(8)]:
            found = translated(regexp).search(token)
            expected = match(anchored, items, token)
            assert (None if found is None else found[0]) == expected, (regexp, token)
            n_found += expected is not None
    assert 2000 < n_found < 7000


def at_row(values, t, place, offset):
    """A value, or the name of a row beyond the ends."""
    at = t + offset if place is None else place - 1 if place > 0 else len(values) + place
    if at < 0:
        return f"_x-{-at if at >= -4 else '#'}", True
    after = at - len(values) + 1
    return (values[at], False) if after <= 0 else (f"_x+{after if after <= 4 else '#'}", True)


def computed(letter, value, anchored, items):
    if letter in "tm":
        found = match(anchored, items, value)
        value = ("false" if found is None else "true") if letter == "t" else found or ""
    return value


def draw_line(rng, n_columns):
    """A line, and its commands (letter, whether in lower case, place, offset, column, regexp)."""
    line, commands = f"{rng.choice(['u', 'b', '*'])}{rng.integers(100)}:", []
    for _ in range(rng.integers(1, 4)):
        letter, lower = rng.choice([*"xtm"]), bool(rng.random() < 0.4)
        number, column = int(rng.integers(-6, 7)), int(rng.integers(n_columns))
        absolute = number != 0 and rng.random() < 0.3
        regexp = draw_regexp(rng)
        while regexp[1] and regexp[1][0][0] == "^":
            regexp = draw_regexp(rng)
        rest = "" if letter == "x" else f',"{text_of(*regexp)}"'
        name = letter.upper() if lower else letter
        line += f"%{name}[{'@' * absolute}{number},{column}{rest}]/"
        commands.append(
            (letter, lower, *((number, 0) if absolute else (None, number)), column, regexp)
        )
    return line, commands


def names_of_row(x, t, lines, boundary):
    names = []
    for line, commands in lines:
        values = []
        for letter, lower, place, offset, column, regexp in commands:
            value, beyond = at_row([row[column] for row in x], t, place, offset)
            if beyond and boundary == "skip":
                break
            if beyond and (letter, lower, place) == ("x", False, None):
                sign, far = (
                    ("-", -(t + offset)) if t + offset < 0 else ("+", t + offset - len(x) + 1)
                )
                value = f"_B{sign}{far}"
            value = computed(letter, value, *regexp)
            values.append(
                "".join(c.lower() if c.isascii() else c for c in value) if lower else value
            )
        if len(values) == len(commands):
            names.append(line[: line.index(":") + 1] + "".join(f"{value}/" for value in values))
    return names


@pytest.mark.parametrize("boundary", ["skip", "mark"])
def test_rows_against_the_obvious_reader(boundary):
    rng = np.random.default_rng(1)
    for _ in range(40):
        X = [
            [(draw_token(rng), draw_token(rng)) for _ in range(rng.integers(1, 6))]
            for _ in range(rng.integers(1, 6))
        ]
        lines = {}
        while len(lines) < 3:
            line, commands = draw_line(rng, 2)
            lines.setdefault(line.split(":")[0], (line, commands))
        lines = list(lines.values())
        features = TemplateFeatures([line for line, _ in lines], boundary=boundary, bos_eos=False)
        rows = features.fit_transform(X)
        names = np.array([name.removesuffix(" (2)") for name in features.get_feature_names_out()])
        expected = [names_of_row(x, t, lines, boundary) for x in X for t in range(len(x))]
        for row, of_row in zip(rows.rows, expected):
            assert sorted(names[row.indices]) == sorted(of_row)
        roles = dict(zip(names, [1] * len(names) if rows.roles is None else rows.roles))
        assert all(role == {"u": 1, "b": 2, "*": 3}[name[0]] for name, role in roles.items())
        one_by_one = sparse.vstack([features.transform([x]).rows for x in X])
        assert (one_by_one != rows.rows).nnz == 0
        hashed = TemplateFeatures(
            ["u" + line[1:] for line, _ in lines],
            boundary=boundary,
            bos_eos=False,
            n_features=2**20,
        ).fit_transform(X)
        assert hashed.rows.nnz == rows.rows.nnz
        for of_row in (
            set(zip(names[a.indices], h.indices)) for a, h in zip(rows.rows, hashed.rows)
        ):
            assert len({name for name, _ in of_row}) == len(of_row)


LINES = ['u:1=%t[0,0,"^\\u"]', 'b:2=%m[-1,0,".?.?$"]', "*:3=%X[0,0]/%x[@1,0]"]
X = [["The", "cat", "SAT"], ["A", "dog"], ["The", "dog", "sat", "there"]]
Y = [["D", "N", "V"], ["D", "N"], ["D", "N", "V", "O"]]


@pytest.mark.parametrize("boundary", ["skip", "mark"])
def test_exported_and_pickled_models_compute_commands(tmp_path, boundary):
    features = TemplateFeatures("\n".join(LINES), boundary=boundary)
    model = make_pipeline(features, CRFTagger(l2=0.01)).fit(X, Y)
    deployment.export(model, tmp_path / "model")
    new = [["Dogs", "sat", "THERE"], ["cat"], ["the", "X", "there", "sat"]]
    expected = model.predict_proba(new)
    for one in (pickle.loads(pickle.dumps(model)), runtime.load(tmp_path / "model")):
        for a, b in zip(one.predict_proba(new), expected):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_command_line_reads_commands(tmp_path):
    names = [tmp_path / name for name in ("templates", "train", "model")]
    templates, train, model = map(str, names)
    names[0].write_text("\n".join(LINES))
    names[1].write_text(
        "\n\n".join("\n".join(map(" ".join, zip(x, y))) for x, y in zip(X, Y)) + "\n"
    )
    assert main(["train", "-m", model, "--templates", templates, train]) in (None, 0)
    names[0].write_text('u:1=%x[0,0]\nu:2=%t[0,0,"*"]')
    assert main(["train", "-m", model, "--templates", templates, train]) not in (None, 0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('u:%t[0,0,"*"]', r'"\*" repeats nothing by \'\*\''),
        ('u:%m[0,0,"^?a"]', "repeats nothing by '[?]'"),
        ('u:%m[0,0,"a**"]', "repeats nothing"),
        ("u:%t[0,0]", '"%t" needs a regular expression'),
        ('u:%X[0,0,"a"]', '"%X" takes no regular expression'),
        ("u:%x[@0,0]", "absolute places count from @1"),
        ('u:%t[@1,3,"a"]', "reads column number 3"),
        ('u:%t[0,0,"a]', "cannot be read"),
        ('u:%y[0,0,"a"]', "cannot be read"),
    ],
)
def test_errors(line, message):
    with pytest.raises(ValueError, match=message):
        TemplateFeatures([line]).fit(X)


def test_a_column_with_the_name_of_a_command():
    with pytest.raises(ValueError, match="has the name of a command; rename it"):
        TemplateFeatures(["U:%x[0,0]"]).fit([{"%X[0]": ["a"]}])


def test_lines_without_commands():
    features = TemplateFeatures(["B", "b01:all", "B  # all pairs", "*", "u"], bos_eos=False)
    rows = features.fit_transform(X)
    assert features.get_feature_names_out().tolist() == ["*", "u"]
    assert rows.roles is None


def test_places_of_the_sequence_are_no_window():
    fields = {
        "u:%x[@1,0]/%x[-2,0]": (np.inf, 1),
        "u:%x[@3,0]": (np.inf, 2),
        "u:%X[@-3,0]": (2, np.inf),
        'u:%t[-3,0,"a"]': (3, 0),
    }
    for line, (before, after) in fields.items():
        features = TemplateFeatures([line], bos_eos=False).fit(X)
        assert receptive_field(features) == (before, max(after, before == np.inf))
        assert receptive_field(WindowFeatures(features).fit(X))[0] >= before
    model = make_pipeline(TemplateFeatures(["u:%x[@1,0]"]), CRFTagger()).fit(X, Y)
    with pytest.raises(ValueError, match="needs the whole sequence"):
        OnlineDecoder(model).fit(X, Y).stream()


def test_streams_of_exported_models_refuse_places(tmp_path):
    model = make_pipeline(TemplateFeatures(["u:%x[@1,0]"]), CRFTagger()).fit(X, Y)
    deployment.export(model, tmp_path / "model")
    decoder = runtime.load(tmp_path / "model")
    assert decoder.predict(X) == model.predict(X)
    with pytest.raises(ValueError, match="reads the first or last item"):
        decoder.stream()
