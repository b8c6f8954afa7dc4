"""CRFTagger with transition features: questions by enumeration, choice of columns, refusals."""

import copy
import itertools
import pickle
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline, make_union

from sklseq import (
    CRFTagger,
    CRFTaggerCV,
    RowBlocks,
    SemiCRFSegmenter,
    Sequences,
    Shards,
    ZScoreTagger,
    write_crfsuite_model,
)
from sklseq.data.constraints import resolve_constraints
from sklseq.data.sequences import canonical
from sklseq.features import DictFeatures, PerToken, TemplateFeatures, TokenFeatures
from sklseq.inspection import uncertainty
from sklseq.objectives.likelihood.stochastic import Batch, StochasticLikelihood
from sklseq.objectives.scores.score_map import ScoreMap, full_support
from sklseq.objectives.scores.transition_features import observed_triples, triples_of
from tests.oracles import all_paths
from tests.reference import log_sum, score_path

TEMPLATE = """
# a word, and pairs of labels with words
U00:%x[0,0]
B
B01:%x[0,0]
*02:%x[-1,0]
"""


def words_and_labels(seed=0, n=30, T=5):
    """After "c", labels change; elsewhere they stay the same unless the word is "b"."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        words = rng.choice(list("aabcd"), int(rng.integers(1, T + 1))).tolist()
        label, labels = "B-x", []
        for word in words:
            label = {"c": "O" if label != "O" else "B-x", "b": "B-x"}.get(word, label)
            labels.append(label if word != "d" or not labels or labels[-1] == "O" else "I-x")
            label = labels[-1]
        X.append(words)
        y.append(labels)
    return X, y


@pytest.fixture(scope="module")
def fitted():
    X, y = words_and_labels()
    rows = TemplateFeatures(TEMPLATE, bos_eos=False).fit_transform(X)
    return CRFTagger(l2=0.1, random_state=0).fit(rows, y), rows, y


def paths(tagger, rows, s):
    """All label paths of a sequence and their scores, by definition."""
    L = len(tagger.classes_)
    x = rows[s].toarray()
    V = tagger.transition_coef_.toarray().reshape(-1, L, L)
    transition = tagger.transition_ + np.einsum("tf,fij->tij", x, V)
    every = list(itertools.product(range(L), repeat=len(x)))
    ends = (tagger.start_, tagger.end_)
    return every, score_path(every, x @ tagger.coef_, transition, *ends)


def test_every_answer_is_that_of_enumeration(fitted):
    tagger, rows, y = fitted
    best, proba, nbest = (
        tagger.predict(rows),
        tagger.predict_proba(rows),
        tagger.predict_nbest(rows, 4),
    )
    log_p, entropy = (
        tagger.predict_log_proba_sequence(rows, y),
        uncertainty(tagger, rows, "entropy"),
    )
    assert tagger.classes_.tolist() == ["B-x", "I-x", "O"]
    known = [[None] * (len(z) - 1) + [z[-1]] for z in y]
    given, conditioned = tagger.predict(rows, known), tagger.predict_proba(rows, known)
    for s in range(len(rows)):
        every, scores = paths(tagger, rows, s)
        p, labels = np.exp(scores - log_sum(scores)), tagger.classes_[np.array(every)]
        order = np.argsort(-scores, kind="stable")
        assert_array_equal(best[s], labels[order[0]])
        mu = np.array(
            [[p[labels[:, t] == c].sum() for c in tagger.classes_] for t in range(len(y[s]))]
        )
        assert_allclose(proba[s], mu, atol=1e-12)
        assert_allclose(nbest[s][1], np.log(p[order[:4]]), rtol=1e-9, atol=1e-12)
        truth = [tagger.classes_.tolist().index(label) for label in y[s]]
        assert_allclose(log_p[s], np.log(p[every.index(tuple(truth))]), rtol=1e-9, atol=1e-12)
        assert_allclose(entropy[s], -(p * np.log(p)).sum(), rtol=1e-9)
        agrees = labels[:, -1] == y[s][-1]
        assert_array_equal(given[s], labels[order[agrees[order]][0]])
        conditional = (p * agrees) / p[agrees].sum()
        mu = conditional @ (labels[:, 0] == "O")
        assert_allclose(conditioned[s][0, 2], mu, atol=1e-12)


def test_samples_have_their_probabilities(fitted):
    tagger, rows, y = fitted
    s = max(range(6), key=lambda k: len(y[k]))
    every, scores = paths(tagger, rows, s)
    p = np.exp(scores - log_sum(scores))
    drawn = tagger.sample(rows[[s]], 4000)[0]
    codes = np.searchsorted(tagger.classes_, drawn)
    counts = np.zeros(len(every))
    np.add.at(counts, codes @ 3 ** np.arange(codes.shape[1])[::-1], 1)
    assert_allclose(counts / 4000, p, atol=5 * np.sqrt(0.25 / 4000))


def has_one_span(labels):
    """Whether no second span begins; conlleval reads "I-x" after "O" as a beginning."""
    before = ["O", *labels]
    return sum(b == "B-x" or (b == "I-x" and a == "O") for a, b in zip(before, labels)) <= 1


@pytest.mark.parametrize("valid", [lambda labels: labels.count("B-x") <= 1, "once", ["x"]])
def test_valid_paths(fitted, valid):
    tagger, rows, _ = fitted
    answers = tagger.predict(rows, valid=valid)
    valid = valid if callable(valid) else has_one_span
    for s, answer in enumerate(answers):
        every, scores = paths(tagger, rows, s)
        labels = tagger.classes_[np.array(every)]
        for k in np.argsort(-scores, kind="stable"):
            if valid(labels[k].tolist()):
                break
        assert_array_equal(answer, labels[k])


def test_spans_and_their_probabilities(fitted):
    tagger, rows, _ = fitted
    spans, scheme = tagger.predict_spans(rows, scheme="iob2"), "iob2"
    assert sum(map(len, spans)) > 10
    for s, found in enumerate(spans):
        every, scores = paths(tagger, rows, s)
        p = np.exp(scores - log_sum(scores))
        for span in found:
            inside = [0] + [1] * (span.stop - span.start - 1)
            has = [
                list(path[span.start : span.stop]) == inside
                and path[span.stop : span.stop + 1] != (1,)
                for path in every
            ]
            assert_allclose(span.probability, p @ np.array(has), atol=1e-10)
    asked = tagger.predict_segment_proba(rows, scheme=scheme)
    assert_allclose(np.concatenate(asked), [s.probability for one in spans for s in one])


def test_explanations_add_up_to_the_score(fitted):
    tagger, rows, _ = fitted
    s = 3
    every, scores = paths(tagger, rows, s)
    terms = [term for row in tagger.explain(rows[s]) for term in row.contributions]
    assert_allclose(sum(score for _, score in terms), scores.max(), rtol=1e-9)
    assert len(every) == 3 ** len(rows[s].toarray())
    assert any(re.fullmatch(r"x\d+, .* → .*", name) for name, _ in terms)


def test_strongest_weights(fitted):
    tagger, rows, _ = fitted
    names = (
        TemplateFeatures(TEMPLATE, bos_eos=False).fit(words_and_labels()[0]).get_feature_names_out()
    )
    weight, before, label, name = tagger.top_transition_features(1, feature_names=names)[0]
    column = names.tolist().index(name)
    i, j = (tagger.classes_.tolist().index(one) for one in (before, label))
    assert weight == tagger.transition_coef_[column, 3 * i + j]
    assert abs(weight) == np.abs(tagger.transition_coef_.data).max()
    assert all(w < 0 for w, *_ in tagger.top_transition_features(5, sign="negative"))
    everything = tagger.top_transition_features(10**6)
    assert len(everything) == tagger.transition_coef_.nnz
    for label in tagger.classes_.tolist():
        found = tagger.top_transition_features(10**6, label=label, sign="positive")
        assert found == [one for one in everything if one[2] == label and one[0] > 0]
    with pytest.raises(ValueError, match=r"label must be one of .*; got 'none'"):
        tagger.top_transition_features(label="none")
    with pytest.raises(ValueError, match="give a label as label='A'"):
        tagger.top_transition_features("A")
    plain = CRFTagger().fit(Sequences(rows.rows, rows.offsets), words_and_labels()[1])
    assert plain.top_transition_features() == []
    assert plain.transition_coef_ is None


# ---------------------------------------------------------------------------- training


def independent_optimum(rows, y, l2):
    """The optimum of a slow implementation: all paths, SciPy's L-BFGS, numerical gradients."""
    classes = sorted({label for z in y for label in z})
    L, x = len(classes), rows.rows.toarray()
    M = x.shape[1]
    codes = [[classes.index(label) for label in z] for z in y]
    sizes = np.cumsum([M * L, L * L, L, L, M * L * L])
    state, triple = np.zeros((M, L)), np.zeros((M, L, L))
    chain, start, end = np.zeros((L, L)), np.zeros(L), np.zeros(L)
    for s, z in enumerate(codes):
        start[z[0]] = end[z[-1]] = 1
        for t, j in enumerate(z):
            row = x[rows.offsets[s] + t] != 0
            state[:, j] += row & (rows.roles % 2 == 1)
            if t:
                chain[z[t - 1], j] = 1
                triple[:, z[t - 1], j] += row & (rows.roles >= 2)
    mask = np.concatenate([k.ravel() > 0 for k in (state, chain, start, end, triple)])

    def value(free):
        w = np.zeros(len(mask))
        w[mask] = free
        coef, A, b, e, V = np.split(w, sizes[:-1])
        psi = x @ coef.reshape(M, L)
        A = A.reshape(L, L) + np.einsum("tf,fij->tij", x, V.reshape(M, L, L))
        total = l2 * free @ free
        for s, z in enumerate(codes):
            part = slice(rows.offsets[s], rows.offsets[s + 1])
            every = all_paths(len(z), L)
            scores = score_path(every, psi[part], A[part], b, e)
            total += log_sum(scores) - score_path(z, psi[part], A[part], b, e)
        return total

    return minimize(value, np.zeros(mask.sum()), method="L-BFGS-B", options={"maxfun": 10**6}).fun


def test_the_optimum_is_that_of_an_independent_implementation():
    X, y = words_and_labels(n=8, T=3)
    rows = TemplateFeatures(["U:%x[0,0]", "B:%x[0,0]"], bos_eos=False).fit_transform(X)
    tagger = CRFTagger(l2=0.2, tol=1e-8).fit(rows, y)
    assert_allclose(tagger.objective_, independent_optimum(rows, y, 0.2), rtol=1e-5)


def test_columns_of_b_lines_have_no_weights_for_labels(fitted):
    tagger, rows, _ = fitted
    assert_array_equal(np.unique(rows.roles), [1, 2, 3])
    counts = np.diff(tagger.transition_coef_.indptr)
    assert_array_equal(counts[rows.roles == 1], 0)
    assert counts[rows.roles >= 2].any()
    assert_array_equal(tagger.coef_[rows.roles == 2], 0)
    every = CRFTagger(all_possible_states=True, all_possible_transitions=True)
    every.fit(*fitted[1:])
    assert_array_equal(every.coef_[rows.roles == 2], 0)
    assert every.coef_[rows.roles != 2].all()
    assert every.transition_coef_.nnz > tagger.transition_coef_.nnz


def test_a_constant_transition_feature_doubles_the_transitions():
    # v of a constant and the shared transitions share their gradient, so at the optimum are equal.
    X, y = words_and_labels()
    dicts = [[{"w": w, "one": 1} for w in x] for x in X]
    tagger = CRFTagger(l2=0.1, tol=1e-9, transition_features=["one"]).fit(dicts, y)
    v = tagger.transition_coef_[tagger.vectorizer_.vocabulary_["one"]].toarray().reshape(3, 3)
    assert_allclose(v, tagger.transition_, atol=1e-4)


def test_l1_makes_weights_zero(fitted):
    _, rows, y = fitted
    dense, sparse = (CRFTagger(l1=l1, l2=0.01).fit(rows, y).transition_coef_ for l1 in (0, 0.5))
    assert 0 < sparse.nnz < 0.6 * dense.nnz
    assert sparse.data.all()


def test_warm_start(fitted):
    tagger, rows, y = fitted
    again = clone(tagger).set_params(warm_start=True, tol=1e-4).fit(rows, y)
    n, objective = again.n_iter_, again.objective_
    again.fit(rows, y)
    assert again.n_iter_ < n
    assert again.objective_ <= objective * (1 + 1e-6)
    assert again.loss_curve_[0] == pytest.approx(objective, rel=1e-9)


@pytest.mark.parametrize("known", [True, False])
def test_searches_and_early_stopping(known):
    X, y = words_and_labels(n=60)
    dicts = [[{"w": w} for w in x] for x in X]
    chosen = "^w" if known else [0, 1]
    search = CRFTaggerCV(l2s=[0.01, 0.1], cv=3, transition_features=chosen, tol=1e-5).fit(dicts, y)
    plain = GridSearchCV(
        CRFTagger(transition_features=chosen, tol=1e-5), {"l2": [0.01, 0.1]}, cv=3
    ).fit(dicts, y)
    assert_allclose(
        search.scores_.mean(axis=(0, 1)), plain.cv_results_["mean_test_score"], atol=0.02
    )
    assert search.transition_coef_.nnz
    stopped = CRFTagger(early_stopping=True, transition_features=chosen).fit(dicts, y)
    assert stopped.validation_scores_
    assert stopped.transition_coef_.nnz


def test_early_stopping_and_penalties_leave_the_data_as_they_are(fitted):
    _, rows, y = fitted
    before = rows.roles.copy()
    CRFTagger(early_stopping=True).fit(rows, y)
    assert_array_equal(rows.roles, before)


@pytest.mark.parametrize(
    "chosen",
    [["w:a", "w:c"], [0, 2], np.array([0, 2]), re.compile("^w:[ac]$"), "^w:[ac]$",
     lambda name: name in ("w:a", "w:c")],
    ids=["names", "numbers", "array", "compiled", "pattern", "function"],
)  # fmt: skip
def test_choice_of_columns(chosen):
    X, y = words_and_labels()
    dicts = [[{"w": "a"}, {"w": "b"}, {"w": "c"}, {"w": "d"}], *([{"w": w} for w in x] for x in X)]
    tagger = CRFTagger(transition_features=chosen).fit(dicts, [["B-x"] * 4, *y])
    assert tagger.feature_names_in_.tolist() == ["w:a", "w:b", "w:c", "w:d"]
    assert_array_equal(np.diff(tagger.transition_coef_.indptr) > 0, [True, False, True, False])
    assert tagger.coef_[[0, 2]].any(axis=1).all()
    again = pickle.loads(pickle.dumps(clone(tagger))) if not callable(chosen) else clone(tagger)
    assert again.get_params()["transition_features"] is not None


def test_pruning_keeps_columns_with_weights_for_pairs():
    X, y = words_and_labels()
    lists = [[[w, f"t={w}"] for w in x] for x in X]
    tagger = CRFTagger(l1=0.3, l2=0.01, transition_features="^t=").fit(lists, y)
    proba = tagger.predict_proba(lists)
    tagger.prune()
    assert tagger.transition_coef_.shape[0] == len(tagger.feature_names_in_) <= 8
    for one, other in zip(tagger.predict_proba(lists), proba):
        assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("chosen", [None, "^t="])
def test_batches_after_pruning_have_the_sums_of_squares_of_kept_columns(chosen):
    X, y = words_and_labels(n=80)
    lists = [[[w, f"t={w}", f"{w}{k % 7}"] for k, w in enumerate(x)] for x in X]
    lists[0][0].insert(0, "once")  # the first column, with weight 0: residuals are below l1
    tagger = CRFTagger(l1=1.0, transition_features=chosen, random_state=0).fit(lists, y)
    tagger.partial_fit(lists[1:20], y[1:20]).partial_fit(lists[20:40], y[20:40])
    whole = copy.deepcopy(tagger)
    tagger.prune()
    names, before = tagger.feature_names_in_.tolist(), whole.feature_names_in_.tolist()
    assert before[0] == "once"
    assert "once" not in names
    kept = [before.index(name) for name in names]
    batch = [[[name for name in row if name in names] for row in x] for x in lists[40:]]
    for model in (tagger, whole):
        model.partial_fit(batch, y[40:])
    assert_array_equal(tagger.coef_, whole.coef_[kept])
    if chosen is not None:
        assert_array_equal(
            tagger.transition_coef_.toarray(), whole.transition_coef_[kept].toarray()
        )


@pytest.mark.parametrize("l1", [0.0, 0.3])
@pytest.mark.parametrize("form", ["words", "numbers", "float32", "unknown", "all"])
def test_steps_of_adagrad_end_at_the_same_minimum(form, l1):
    X, y = words_and_labels(n=60)
    rows = TemplateFeatures(TEMPLATE, bos_eos=False).fit_transform(X)
    if form != "words":
        values = np.random.default_rng(0).normal(size=rows.rows.nnz) * 3
        csr = rows.rows.copy().astype(np.float32 if form == "float32" else float)
        csr.data = values.astype(csr.dtype)
        rows = rows.with_rows(csr)
    if form == "unknown":
        y = [[None, *z[1:]] for z in y]
    given = {"l1": l1, "l2": 0.1, "tol": 1e-7, "max_iter": 3000, "random_state": 0}
    given["all_possible_transitions"] = form == "all"
    a, b = (CRFTagger(solver=solver, **given).fit(rows, y) for solver in ("adagrad", "lbfgs"))
    assert a.solver_ == "adagrad+lbfgs"
    assert_allclose(a.objective_, b.objective_, rtol=1e-5)
    assert a.transition_coef_.dtype == b.transition_coef_.dtype
    if form != "float32":
        differences = (a.transition_coef_ - b.transition_coef_).toarray()
        assert np.abs(differences).max() < 0.05
    assert (a.loss_curve_[1] < 0.9 * a.loss_curve_[0]) or form in ("numbers", "float32", "all")


def test_auto_takes_steps_for_many_rows():
    X, y = words_and_labels(n=4000)
    rows = TemplateFeatures(TEMPLATE, bos_eos=False).fit_transform(X)
    for n_jobs, all_pairs in itertools.product((1, 2), (False, True)):  # threads are merged
        given = {"l2": 20.0, "all_possible_transitions": all_pairs}
        tagger = CRFTagger(n_jobs=n_jobs, **given).fit(rows, y)
        assert tagger.solver_ == ("adagrad+lbfgs" if all_pairs else "dual")
        lbfgs = CRFTagger(solver="lbfgs", tol=1e-4, **given).fit(rows, y)
        assert lbfgs.objective_ * (1 - 1e-4) <= tagger.objective_ <= 1.01 * lbfgs.objective_


def test_batches():
    X, y = words_and_labels(n=300)
    rows = TemplateFeatures(TEMPLATE, bos_eos=False).fit_transform(X)
    classes, L = ["B-x", "I-x", "O"], 3
    tagger, bare = CRFTagger(l2=0.01, random_state=0), CRFTagger(l2=0.01, random_state=0)
    plain, seen = Sequences(rows.rows, rows.offsets), set()
    thin = CRFTagger(l1=20.0, random_state=0)
    for a in [*range(0, 300, 50)] * 2:
        one = slice(a, a + 50)
        tagger = pickle.loads(pickle.dumps(tagger)).partial_fit(rows[one], y[one], classes)
        bare.partial_fit(plain[one], y[one], classes)
        codes = np.concatenate([[classes.index(label) for label in z] for z in y[one]])
        columns = np.flatnonzero(rows.roles >= 2)
        seen |= set(observed_triples(rows[one], columns, codes, L).tolist())
        assert set(triples_of(tagger.transition_coef_).tolist()) == seen
        # Sums of squares stay where weights are zero for now.
        before = {} if a == 0 else dict(zip(*(x.tolist() for x in thin._squares[2:])))
        thin.partial_fit(rows[one], y[one], classes)
        after = dict(zip(*(x.tolist() for x in thin._squares[2:])))
        assert set(after) == seen
        assert all(after[triple] >= square for triple, square in before.items())
    assert thin.transition_coef_.nnz < len(seen)
    assert not tagger.coef_[rows.roles == 2].any()
    assert tagger.n_seen_ == 600
    assert tagger.score(rows, y) > bare.score(plain, y) + 0.05
    assert tagger.loss_curve_[-1] < 0.5 * tagger.loss_curve_[0]
    known = tagger.transition_coef_.nnz
    tagger.set_params(all_possible_transitions=True).partial_fit(rows[:50], y[:50])
    assert tagger.transition_coef_.nnz > known
    tagger.partial_fit(rows[:9], [[None, *z[1:]] for z in y[:9]])
    fitted = CRFTagger(l2=0.1).fit(rows, y)
    before = fitted.transition_coef_.copy()
    moved = np.abs((fitted.partial_fit(rows[:9], y[:9]).transition_coef_ - before).toarray())
    assert 0 < moved.max() < 0.5
    assert fitted.score(rows, y) > 0.95


def test_a_batch_is_a_pass_of_steps():
    X, y = words_and_labels(n=20)
    rows = TemplateFeatures(TEMPLATE, bos_eos=False).fit_transform(X)
    # The order of entries decides which draw of the generator each residual gets.
    rows = rows.with_rows(canonical(sparse.csr_matrix(rows.rows)))
    tagger = CRFTagger(l2=0.3, l1=0.1, random_state=3).partial_fit(rows, y, ["B-x", "I-x", "O"])
    codes = np.concatenate([[tagger.classes_.tolist().index(label) for label in z] for z in y])
    columns = np.flatnonzero(rows.roles >= 2)
    pairs = np.flatnonzero(np.repeat(rows.roles % 2 == 1, 3))
    triples = observed_triples(rows, columns, codes, 3)
    support = full_support(3)._replace(pairs=pairs, triples=triples)
    allowed = resolve_constraints(None, tagger.classes_)
    scores = ScoreMap(rows, 3, support, allowed, np.dtype(float), as_it_is=True)
    batch = Batch(scores, 0.3, codes.astype(np.int32), rows.offsets, np.ones(20))
    steps = StochasticLikelihood(batch, 0.1, None, 1.0)
    steps.descend(np.random.default_rng([3, 0]).permutation(20), 1.0)
    found = scores.unpack_triples(steps.w).toarray()
    assert_allclose(tagger.transition_coef_.toarray(), found, atol=1e-12)
    assert_allclose(tagger.coef_, scores.unpack(steps.w).coef, atol=1e-12)
    assert np.abs(found).max() > 0.1


# ---------------------------------------------------------------------------- roles of columns


def test_roles_go_through_pipelines_unions_slices_pickles_and_files(tmp_path, fitted):
    _, rows, y = fitted
    X, _ = words_and_labels()
    assert_array_equal(rows[3:9].roles, rows.roles)
    assert_array_equal(rows[[4, 1]].roles, rows.roles)
    assert_array_equal(pickle.loads(pickle.dumps(rows)).roles, rows.roles)
    rows.save(tmp_path / "rows.npz", y)
    assert_array_equal(Sequences.load(tmp_path / "rows.npz").roles, rows.roles)
    union = make_union(TokenFeatures(), TemplateFeatures(TEMPLATE, bos_eos=False))
    joined = union.fit_transform([{"w": x} for x in X])
    assert_array_equal(joined.roles[-len(rows.roles) :], rows.roles)
    assert_array_equal(np.unique(joined.roles[: -len(rows.roles)]), [1])
    model = make_pipeline(TemplateFeatures(TEMPLATE, bos_eos=False), PerToken(), CRFTagger(l2=0.1))
    search = GridSearchCV(model, {"crftagger__l2": [0.1]}, cv=2).fit(X, y)
    again = search.best_estimator_[-1]
    assert again.transition_coef_.nnz == fitted[0].transition_coef_.nnz
    assert_array_equal(np.concatenate(search.predict(X)), np.concatenate(fitted[0].predict(rows)))


@pytest.mark.parametrize("extractor", [DictFeatures, TokenFeatures])
def test_extractors_mark_columns_by_name(extractor):
    X, y = words_and_labels()
    X = [[{"w": w} for w in x] for x in X] if extractor is DictFeatures else X
    features = extractor(transition_features="(word=|w:)[ac]$")
    model = make_pipeline(features, CRFTagger(l2=0.1)).fit(X, y)
    names = model[0].get_feature_names_out()
    assert_array_equal(names[model[0].transform(X).roles == 3], names[model[0].roles_ == 3])
    assert (model[0].roles_ == 3).sum() == 2
    assert_array_equal(np.diff(model[-1].transition_coef_.indptr) > 0, model[0].roles_ == 3)


def test_templates_of_pairs_are_read_as_those_of_labels():
    X, _ = words_and_labels()
    both = TemplateFeatures("B7:%x[-1,0]/%x[0,0]\nU7:%x[-1,0]/%x[0,0]", bos_eos=False)
    rows = both.fit_transform(X)
    names = both.get_feature_names_out()
    dense = rows.rows.toarray()
    for column, name in enumerate(names):
        assert rows.roles[column] == {"B": 2, "U": 1}[name[0]]
        other = names.tolist().index({"B": "U", "U": "B"}[name[0]] + name[1:])
        assert_array_equal(dense[:, column], dense[:, other])
    assert both.fit(X).roles_ is not None
    assert both.set_params(templates="U7:%x[0,0]").fit(X).roles_ is None
    rare = TemplateFeatures("b:%x[0,0]\n*:%x[-1,0]", bos_eos=False, min_count=20).fit(X)
    assert_array_equal(
        [r == 2 for r in rare.roles_], [n[0] == "b" for n in rare.get_feature_names_out()]
    )


# ---------------------------------------------------------------------------- what cannot be


def test_what_does_not_train_or_decode_them_says_so(tmp_path, fitted):
    tagger, rows, y = fitted
    blocks, bare = [RowBlocks([x.toarray()]) for x in rows], Sequences(rows.rows, rows.offsets)
    rows.save(tmp_path / "rows.npz", y)
    labels = [["O"] * len(z) for z in y]
    names = make_pipeline(TemplateFeatures("U:%x[0,0]"), CRFTagger(transition_features="a"))
    for call, message in [
        (lambda: ZScoreTagger().fit(rows, y), "which only CRFTagger and HMSVMTagger train"),
        (lambda: SemiCRFSegmenter().fit(rows, labels), "which SemiCRFSegmenter does not train"),
        (lambda: CRFTagger(transition_features="a").fit(blocks, y), "and X has no names"),
        (
            lambda: CRFTagger().fit(Shards([tmp_path / "rows.npz", (bare, y)])),
            "its columns have other roles than those of shard 0",
        ),
        (lambda: clone(tagger).fit(rows, y).partial_fit(bare, y), "but training began with them"),
        (lambda: clone(tagger).fit(bare, y).partial_fit(rows, y), "but training began without"),
        (lambda: CRFTagger(entropy_weight=0.1).fit(rows, y), "cannot be combined with transition"),
        (lambda: write_crfsuite_model(tagger, tmp_path / "m"), "which CRFsuite does not have"),
        (lambda: names.fit(*words_and_labels()), "chooses columns by name, and X has no names"),
        (lambda: PerToken(lambda x: x[:1]).fit_transform(rows), "a transformer made 1 columns"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


def test_names_of_no_columns():
    for chosen in ("w", ["w"]):
        with pytest.raises(ValueError, match="X has no columns"):
            DictFeatures(transition_features=chosen).fit([[{}]])


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (3, "transition_features must be None, or names, column numbers, a mask, a regular"),
        ([], r"transition_features=\[\] chooses none of the 4 columns of X; column numbers are"),
        ([0.5], "transition_features must be None, or names"),
        (["w:z"], "names 'w:z', which is not a column of X; names look like 'w:"),
        ("^z", r"'\^z' chooses none of the \d columns of X; names look like 'w:"),
        ("(", "is not a regular expression"),
        ([9], "must hold column numbers from 0 to 3"),
        ([-1], "must hold column numbers from 0 to 3"),
        ([True, False], "is a mask of 2 columns, and X has 4"),
        (lambda _: False, "chooses none of the 4 columns"),
    ],
)
def test_wrong_choices_of_columns(chosen, message):
    X, y = words_and_labels()
    dicts = [[{"w": w} for w in x] for x in X]
    with pytest.raises(ValueError, match=message):
        CRFTagger(transition_features=chosen).fit(dicts, y)


@pytest.mark.parametrize("roles", [[1, 2], [0, 1, 2], [1, 2, 4], [1.0, 2.0, 3.0]])
def test_wrong_roles(roles):
    with pytest.raises(ValueError, match=r"roles must hold 1 .* for each of 3 columns"):
        Sequences(np.zeros((2, 3)), [0, 2], roles)
