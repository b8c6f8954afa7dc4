"""What several benchmarks share: data folders, tables, clocks, features of tokens."""

import os
from pathlib import Path
from time import perf_counter, process_time

import numpy as np


class NoData(Exception):
    """What is to be measured needs data that are not there."""


def folder(name):
    """A folder of data under SKLSEQ_DATA, or None."""
    path = Path(os.environ.get("SKLSEQ_DATA", "")) / name
    return path if "SKLSEQ_DATA" in os.environ and path.is_dir() else None


def need(name):
    """As ``folder``; raises NoData if there is none."""
    if (path := folder(name)) is None:
        raise NoData(f"SKLSEQ_DATA names no folder that holds {name}")
    return path


def each_with_data(work, names, *arguments):
    """Call a function for each name; one that lacks its data prints a line."""
    for name in names:
        try:
            work(name, *arguments)
        except NoData as missing:
            print(f"({name}: {missing})")


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def header(*cells):
    row(*cells)
    row(*["---"] * len(cells))


def seconds(work, *arguments):
    began = perf_counter()
    work(*arguments)
    return perf_counter() - began


def by_turns(works, rounds, clock=process_time):
    """Seconds of functions that run in turn, in an array of shape (rounds, n_functions)."""
    times = np.empty((rounds, len(works)))
    for of_round in times:
        for k, work in enumerate(works):
            began = clock()
            work()
            of_round[k] = clock() - began
    return times


def fit_seconds(model, *train):
    return seconds(model.fit, *train)


def shape_features(word):
    """What a word looks like: the "spelling properties" of several papers."""
    found = [f"w={word.lower()}"]
    checks = {
        "capital": word[:1].isupper(), "upper": word.isupper(),
        "digit": any(map(str.isdigit, word)),
        "number": word.replace(",", "").replace(".", "").isdigit(), "hyphen": "-" in word,
        "point": "." in word and len(word) > 1, "alnum": word.isalnum(), "quote": word in "\"'«»",
        "inner": any(map(str.isupper, word[1:])) and not word.isupper(), "one": len(word) == 1,
    }  # fmt: skip
    return found + [name for name, holds in checks.items() if holds]


def window_features(own):
    """Attributes of the previous, this and the next word, given those of each word."""
    return [
        own[t]
        + ([f"-1:{f}" for f in own[t - 1]] if t else ["first"])
        + ([f"+1:{f}" for f in own[t + 1]] if t + 1 < len(own) else ["last"])
        for t in range(len(own))
    ]


def tutorial_items(words, tags=None):
    """The dicts of a sentence, as the tutorial of sklearn-crfsuite describes them."""
    return [_tutorial_item(words, tags, t) for t in range(len(words))]


def _tutorial_item(words, tags, t):
    word = words[t]
    item = {
        "bias": 1.0, "word.lower()": word.lower(), "word[-3:]": word[-3:], "word[-2:]": word[-2:],
        "word.isupper()": word.isupper(), "word.istitle()": word.istitle(),
        "word.isdigit()": word.isdigit(),
    }  # fmt: skip
    if tags:
        item["postag"], item["postag[:2]"] = tags[t], tags[t][:2]
    for there, prefix, edge in ((t - 1, "-1:", "BOS"), (t + 1, "+1:", "EOS")):
        if 0 <= there < len(words):
            word = words[there]
            item[prefix + "word.lower()"] = word.lower()
            item[prefix + "word.istitle()"] = word.istitle()
            item[prefix + "word.isupper()"] = word.isupper()
            if tags:
                item[prefix + "postag"] = tags[there]
                item[prefix + "postag[:2]"] = tags[there][:2]
        else:
            item[edge] = True
    return item
