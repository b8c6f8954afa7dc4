"""Generated tagging with many labels: what an evaluation, a pass and an answer cost."""

import warnings
from contextlib import contextmanager

import numpy as np
from _common import seconds
from _peers import crfsuite_items, crfsuite_trainer, trained_crfsuite
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from sklseq import CRFTagger, Sequences
from sklseq._lib.threads import Threads
from sklseq.estimators.crf.crf_problem import previous_weights, score_map
from sklseq.estimators.sources.source import RowSource
from sklseq.inference.chain import sparse_transitions as pairs
from sklseq.objectives.likelihood.dual import DualLikelihood
from sklseq.objectives.likelihood.likelihood import LogLikelihood

MATRIX_ONLY = (-1.0, 0.0)


def sentences(n_labels, n_sequences, followers=0.1, seed=0):
    """Tags with some 3 to 10 % of all transitions, words of one tag each, and their endings.

    Returns rows of a token's word, its neighbours and three endings, and label sequences.
    """
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, n_labels + 1) ** 0.9  # tags are as unequal as words are
    share /= share.sum()
    reach = max(4, int(followers * n_labels))
    after = np.array([rng.choice(n_labels, reach, False, share) for _ in range(n_labels)])
    n_words = 20 * n_labels
    tag = rng.choice(n_labels, n_words, p=0.5 * share + 0.5 / n_labels)
    tag[:n_labels] = np.arange(n_labels)
    words = [np.flatnonzero(tag == k) for k in range(n_labels)]
    endings = [
        rng.integers(0, 5 * n_labels, n_words),
        tag // 3 * 3 + rng.integers(0, 3, n_words),
        tag // 8,
    ]
    lengths = 1 + rng.poisson(20, n_sequences)
    labels, tokens = [], []
    for length in lengths:
        y = [rng.choice(n_labels, p=share)]
        for k in rng.exponential(reach / 4, length - 1).astype(int):
            y.append(after[y[-1], min(k, reach - 1)])
        own = [words[k][int(len(words[k]) * rng.random() ** 2)] for k in y]
        wrong = rng.random(length) < 0.07
        tokens.append(np.where(wrong, rng.integers(0, n_words, length), own))
        labels.append(np.array(y))
    return Sequences(_rows(tokens, endings, n_words), np.cumsum([0, *lengths])), labels


def _rows(tokens, endings, n_words):
    own = np.concatenate(tokens)
    before = np.concatenate([np.r_[n_words, w[:-1]] for w in tokens])  # n_words: none
    behind = np.concatenate([np.r_[w[1:], n_words] for w in tokens])
    blocks, first = [], 0
    for column in (own, before, behind, *(e[own] for e in endings)):
        blocks.append(first + column)
        first += int(column.max()) + 1
    index = np.stack(blocks, axis=1)
    ptr = np.arange(0, index.size + 1, index.shape[1])
    return sparse.csr_matrix((np.ones(index.size), index.ravel(), ptr), (len(own), first))


@contextmanager
def the_matrix():
    """Without lists of pairs."""
    limits = pairs.LIMITS
    pairs.LIMITS = dict.fromkeys(limits, MATRIX_ONLY)
    try:
        yield
    finally:
        pairs.LIMITS = limits


class Work:
    """An evaluation with its gradient, a pass of the dual, labels and marginals."""

    def __init__(self, X, y, threads):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.X, self.tagger = X, CRFTagger(solver="lbfgs", max_iter=10).fit(X, y)
        classes, codes = np.unique(np.concatenate(y), return_inverse=True)
        codes = codes.astype(np.int32)
        source = RowSource(X, codes, classes)
        scores = score_map(self.tagger, source, source.summarise(), single_sequences=True)
        self.n_labels, self.share = len(classes), len(scores.transition_at) / len(classes) ** 2
        self.f = LogLikelihood(scores, codes, X.offsets, np.ones(len(X)), 1.0, threads)
        self.w = previous_weights(self.tagger, scores, classes, None)
        self.gradient, self.dual = np.zeros_like(self.w), DualLikelihood(self.f)

    def evaluation(self):
        self.f.value_and_gradient(self.w, self.gradient)

    def dual_pass(self):
        self.dual.ascend(self.dual.sequences)

    def predict(self):
        self.tagger.predict(self.X)

    def predict_proba(self):
        self.tagger.predict_proba(self.X)


QUESTIONS = ("evaluation", "dual_pass", "predict", "predict_proba")


def matrix_against_lists(n_labels, n_sequences, turns):
    """(labels that occur, share of transitions, {question: µs a row by the matrix and by lists}).

    Minima of the turns.
    """
    X, y = sentences(n_labels, n_sequences)
    with Threads(1) as threads:
        listed = Work(X, y, threads)
        with the_matrix():
            whole = Work(X, y, threads)
        times = {name: ([], []) for name in QUESTIONS}
        for _ in range(turns):
            for name, (by_matrix, by_lists) in times.items():
                with the_matrix():
                    by_matrix.append(seconds(getattr(whole, name)))
                by_lists.append(seconds(getattr(listed, name)))
    best = {name: tuple(1e6 * min(t) / X.n_rows for t in both) for name, both in times.items()}
    return listed.n_labels, listed.share, best


def crfsuite_iteration(n_labels, n_sequences):
    """µs a row of one iteration of CRFsuite's L-BFGS, the last of three."""
    X, y = sentences(n_labels, n_sequences)
    trainer = crfsuite_trainer(crfsuite_items(X), y, c1=0.0, c2=1.0, max_iterations=3)
    trained_crfsuite(trainer)
    return 1e6 * float(trainer.logparser.iterations[-1]["time"]) / X.n_rows
