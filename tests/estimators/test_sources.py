"""Sources of training data: one protocol, one summary and one objective wherever the data lie."""

import numpy as np
import pytest
from scipy import sparse

from sklseq import CRFTagger, RowBlocks, Sequences, Shards
from sklseq._lib.threads import Threads
from sklseq.estimators.crf.crf_problem import check_source, score_map
from sklseq.estimators.sources.open_source import open_source
from sklseq.objectives.likelihood.summary import merge_summaries
from sklseq.objectives.scores.score_map import Weights

LENGTHS = [3, 0, 7, 1, 5, 4]
CUTS = [0, 2, 4, 6]


def data(form, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(sum(LENGTHS), 5)) * (rng.random((sum(LENGTHS), 5)) < 0.5)
    X = Sequences(form(rows), np.cumsum([0, *LENGTHS]))
    y = [rng.integers(0, 3, n).astype(str) for n in LENGTHS]
    y[0] = np.array(["0", "1", "2"])
    return X, y


def sources(form, seed=0):
    X, y = data(form, seed)
    shards = Shards([(X[a:b], y[a:b]) for a, b in zip(CUTS, CUTS[1:])])
    blocks = [RowBlocks(lambda x=x: iter([x[:2], x[2:]])) for x in X]
    return {
        "rows": open_source(X, y, None, "auto"),
        "rows in blocks": open_source(X, y, None, "streaming"),
        "blocks": open_source(blocks, y, None, "auto"),
        "shards": open_source(shards, None, None, "auto"),
    }


FORMS = [np.asarray, sparse.csr_matrix]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(3))
def test_all_sources_have_one_summary(form, seed):
    found = {name: source.summarise() for name, source in sources(form, seed).items()}
    first = found["rows"]
    for one in found.values():
        np.testing.assert_array_equal(one.classes, first.classes)
        assert (one.n_rows, one.longest, one.n_features) == (20, 7, 5)
        assert one.dtype == first.dtype
        for a, b in zip(one.support, first.support):
            np.testing.assert_array_equal(a, b)
        # Parts whose values lie between 1/8 and 8 count as 1.
        apart = np.log2(one.largest) - np.log2(first.largest)
        np.testing.assert_allclose(apart, 0, atol=0 if form is np.asarray else 3)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("parameters", [{}, {"all_possible_states": True}, {"boundaries": False}])
def test_all_sources_have_one_objective(form, parameters):
    rng, tagger, answers = np.random.default_rng(1), CRFTagger(**parameters), []
    weights = Weights(*(rng.normal(size=s) for s in ((5, 3), (3, 3), 3, 3)))
    for source in sources(form).values():
        scores = score_map(tagger, source, source.summarise())
        with source, Threads(1) as threads:
            f = source.likelihood(scores, 0.5, threads)
            w = scores.pack(weights)
            gradient = np.zeros_like(w)
            value = f.value_and_gradient(w, gradient)
        answers.append((value, *scores.unpack(gradient)))
    for other in answers[1:]:
        for a, b in zip(other, answers[0]):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("named", [False, True])
def test_merging_summaries_is_associative(named):
    X, y = data(sparse.csr_matrix)
    if named:
        X = [[{f"a{j}": 1.0 for j in np.flatnonzero(row)} for row in x.toarray()] for x in X]
    source = open_source(
        Shards([(X[a:b], y[a:b]) for a, b in zip(CUTS, CUTS[1:])]), None, None, "auto"
    )
    source.summarise()
    a, b, c = source.summaries
    whole = merge_summaries([a, b, c], ValueError)
    assert whole.counts.sum() == sum(one.counts.sum() for one in (a, b, c))
    for other in (
        merge_summaries([merge_summaries([a, b], ValueError), c], ValueError),
        merge_summaries([a, merge_summaries([b, c], ValueError)], ValueError),
    ):
        assert other[1:6] == whole[1:6]
        assert (other.attributes, other.parts) == (whole.attributes, whole.parts)
        np.testing.assert_array_equal(other.classes, whole.classes)
        np.testing.assert_array_equal(other.counts, whole.counts)
        for mine, theirs in zip(other.support, whole.support):
            np.testing.assert_array_equal(mine, theirs)


REFUSED = {
    "rows": [],
    "rows in blocks": [{"solver": "eg"}, {"solver": "adagrad"}],
    "blocks": [{"solver": "dual"}, {"solver": "adagrad"}],
    "shards": [{"solver": "dual"}, {"gradient": "emp"}],
}
ALL = [
    {}, {"solver": "dual"}, {"solver": "eg"}, {"solver": "adagrad"}, {"solver": "lbfgs"},
    {"solver": "owlqn"}, {"early_stopping": True}, {"gradient": "forward-backward"},
]  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_source_refuses_what_it_lacks_by_name(name):
    source = sources(np.asarray)[name]
    for parameters in REFUSED[name]:
        [(parameter, value)] = parameters.items()
        with pytest.raises(ValueError, match=rf"{parameter}={value!r}.* use "):
            check_source(CRFTagger(**parameters), source)
    lacking = {"eg", "dual"} if REFUSED[name] else set()
    for parameters in ALL:
        if parameters not in REFUSED[name] and parameters.get("solver") not in lacking:
            check_source(CRFTagger(**parameters), source)
