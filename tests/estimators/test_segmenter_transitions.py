"""SemiCRFSegmenter with transition features: enumeration, gradients, every answer, errors."""

import itertools
import pickle
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from sklseq import OnlineDecoder, SegmentPotentials, SegmentReranker, SemiCRFSegmenter
from sklseq._lib.threads import Threads
from sklseq.data.segment_labels import segments_to_labels
from sklseq.data.segment_potentials import SequencePotentials
from sklseq.datasets import make_citations
from sklseq.estimators.semicrf.segment_problem import SegmentProblem, descend
from sklseq.estimators.semicrf.segment_source import SegmentSource
from sklseq.features import SegmentFeatures, TemplateFeatures, TokenFeatures
from sklseq.inspection import explain
from sklseq.objectives.segment.segment_hinge import SegmentHinge, token_loss
from sklseq.objectives.segment.segment_likelihood import SegmentLogLikelihood
from tests.estimators.test_semicrf import covered, problem
from tests.inference.test_segment_inference import segmentations
from tests.oracles import precise_numerical_gradient
from tests.segment_reference import is_active

COLUMNS = [0, 2, 3]


def starts_of(x):
    """x_t of each step, from the definition."""
    rows = np.zeros((x.n_steps, x.rows.shape[1]))
    dense = x.rows.toarray()
    for kind, start, stop, row in zip(x.kind, x.start, x.stop, dense, strict=True):
        if kind in (1, 3) and stop == start + 1:
            rows[start] += row
    return rows


def enumerated(model, x):
    """All segmentations (start, stop, code) of a sequence, and their scores."""
    L, limit = (
        len(model.classes_),
        [1 if label == "O" else model.max_segment_length_ for label in model.classes_],
    )
    scores = x.rows @ model.coef_
    V = model.transition_coef_.toarray().reshape(-1, L, L)
    transition = model.transition_ + np.einsum("tf,fij->tij", starts_of(x), V)
    every, values = list(segmentations(x.n_steps, L, limit)), []
    for segments in every:
        total, before = 0.0, None
        for i, j, k in segments:
            total += scores[is_active(x.kind, x.start, x.stop, i, j), k].sum()
            total += model.start_[k] if before is None else transition[i, before, k]
            before = k
        values.append(total + (0 if before is None else model.end_[before]))
    return every, np.array(values)


def codes_of(model, gold):
    index = {label: k for k, label in enumerate(model.classes_)}
    return [(i, j, index[label]) for i, j, label in gold]


def wrong_steps(segments, gold):
    """Steps whose IOB2 label is not that of the true segments."""
    labels = [{(t, k, t == i) for i, j, k in one for t in range(i, j)} for one in (segments, gold)]
    return len(labels[0] - labels[1])


def objective(model, X, y, weights, softmax_margin):
    total = 0.0
    for x, gold, weight in zip(X, covered(y, X), weights, strict=True):
        every, values = enumerated(model, x)
        gold = codes_of(model, gold)
        costs = [wrong_steps(one, gold) * softmax_margin for one in every]
        total += weight * (logsumexp(values + costs) - values[every.index(gold)])
    parts = model.coef_, model.transition_, model.start_, model.end_, model.transition_coef_.data
    return total + model.l2 * sum(np.square(part).sum() for part in parts)


OPTIONS = [
    {},
    {"all_possible_states": False, "all_possible_transitions": False},
    {"max_segment_length": 6, "loss": "softmax-margin"},
    {"l1": 1e-300},  # without the basis of parallel columns
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_value_and_gradient(seed, options):
    assert check_objective(seed, options, n_jobs=seed + 1)


def check_objective(seed, options, n_jobs=1, longest=4):
    """Objective of random weights by enumeration, gradient by finite differences.

    Returns the number of triples.
    """
    X, y = problem(seed, n_sequences=5, longest=longest, dense=bool(seed % 2))
    rng = np.random.default_rng(seed)
    model = SemiCRFSegmenter(l2=0.3, transition_features=COLUMNS, **options)
    weights = rng.uniform(0.5, 2, len(X))
    source = SegmentSource.read(X, y, weights, "O")
    training = SegmentProblem(model, source)
    scores, data = training.scores, training.data
    soft = model.loss == "softmax-margin"
    loss = token_loss(data, scores.n_labels) if soft else None
    with Threads(n_jobs) as threads:
        f = SegmentLogLikelihood(scores, data, weights, 0.3, threads, loss)
        w = scores.new_vector()
        w[:] = rng.normal(size=len(w))
        w = scores.pack(scores.unpack(w), scores.unpack_triples(w))
        gradient, ignored = scores.new_vector(), scores.new_vector()
        value = f.value_and_gradient(w, gradient)
        for name, attribute in training.attributes(w).items():
            setattr(model, name, attribute)
        assert_allclose(value, objective(model, X, y, weights, soft), rtol=1e-10)

        def at(v):
            aligned = scores.new_vector()
            aligned[:] = v
            return f.value_and_gradient(aligned, ignored)

        ones = np.ones_like(w)
        used = scores.pack(scores.unpack(ones), scores.unpack_triples(ones)) != 0
        assert used[scores.ends[-1] :].all()
        numerical = precise_numerical_gradient(at, w)
        assert_allclose(gradient[used], numerical[used], rtol=1e-8, atol=1e-8)
    return len(scores.triples(w))


@pytest.mark.parametrize("seed", range(3))
def test_stored_zeros_count_as_observed(seed):
    """The triples are those of the definition, as those of taggers are."""
    X, y = problem(seed, dense=False)
    rows = sparse.csr_matrix(X.rows)
    rows.data *= np.random.default_rng(seed).random(rows.nnz) < 0.3
    bare = rows.copy()
    bare.eliminate_zeros()
    given = X.kind, X.start, X.stop
    X, without = (
        SegmentPotentials(X.lengths, X.offsets, *given, r, row=X.row) for r in (rows, bare)
    )
    model = SemiCRFSegmenter(transition_features=COLUMNS, tol=1e-8)
    one, other = (clone(model).fit(Z, y) for Z in (X, without))
    stored, index = np.diff(rows.indptr), {label: k for k, label in enumerate(one.classes_)}
    seen = set()
    for x, own, gold in zip(X, np.split(np.arange(X.n_potentials), X.offsets[1:-1]), covered(y, X)):
        for (_, _, before), (start, _, label) in zip(gold, gold[1:]):
            for p, k, a, b in zip(own, x.kind, x.start, x.stop):
                if k in (1, 3) and a == start and b == start + 1:
                    columns = rows.indices[rows.indptr[X.row[p]] :][: stored[X.row[p]]]
                    seen |= {(f, index[before] * 3 + index[label]) for f in columns}
    training = SegmentProblem(model, SegmentSource.read(X, y, None, "O"))
    triples = {divmod(q, 9) for q in training.scores.features.triples.tolist()}
    assert triples == {(f, pair) for f, pair in seen if f in COLUMNS}
    assert len(triples) > len(other.transition_coef_.indices)
    assert one.objective_ < other.objective_  # it has more weights


@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_hinge_loss(seed, every):
    """Every violation and the primal objective by enumeration; the dual meets it."""
    X, y = problem(seed, n_sequences=10, longest=4, dense=bool(seed))
    model = SemiCRFSegmenter(
        l2=0.3, loss="hinge", transition_features=COLUMNS, all_possible_states=every
    )
    weights = np.random.default_rng(seed).uniform(0.5, 2, len(X))
    training = SegmentProblem(model, SegmentSource.read(X, y, weights, "O"))
    hinge = SegmentHinge(training.scores, training.data, weights, 0.3)
    gaps, duals = np.zeros(len(X)), []
    for k in range(300):
        hinge.optimize(hinge.blocks if k % 2 else hinge.blocks[:1], gaps, 20, 0.0)
        duals.append(hinge.certificate().dual)
        vars(model).update(training.attributes(hinge))
        if k in (2, 299):
            assert_allclose(
                hinge.certificate().primal, hinge_objective(model, X, y, hinge), rtol=1e-10
            )
    assert np.count_nonzero(model.transition_coef_.data) > 3
    assert (np.diff(duals) >= -1e-9).all()
    assert_allclose(duals[-1], hinge.certificate().primal, rtol=1e-3)


def hinge_objective(model, X, y, hinge):
    """The primal objective; also asserts that all violations are the enumerated ones."""
    parts = model.coef_, model.transition_, model.start_, model.end_, model.transition_coef_.data
    total = model.l2 * sum(np.square(part).sum() for part in parts)
    for s, (x, gold) in enumerate(zip(X, covered(y, X), strict=True)):
        every, values = enumerated(model, x)
        gold = codes_of(model, gold)
        gain = values - values[every.index(gold)] + [wrong_steps(one, gold) for one in every]
        total += hinge.weights[s] * gain.max()
        found = [hinge.sets[s].violation(np.array(one, np.int64).reshape(-1, 3)) for one in every]
        assert_allclose(found, gain, atol=1e-9)
    return total


@pytest.fixture(scope="module")
def fitted():
    X, y = problem(5, n_sequences=30, longest=5, dense=False)
    return SemiCRFSegmenter(l2=0.05, transition_features=COLUMNS).fit(X, y), X, y


def test_fit_minimises_the_objective(fitted):
    model, X, y = fitted
    assert_allclose(model.objective_, objective(model, X, y, np.ones(len(X)), False), rtol=1e-10)
    plain = SemiCRFSegmenter(l2=0.05).fit(X, y)
    assert model.objective_ < plain.objective_
    assert plain.transition_coef_ is None
    assert set(np.flatnonzero(np.diff(model.transition_coef_.indptr))) == set(COLUMNS)


def test_every_answer_is_that_of_enumeration(fitted):
    model, X, y = fitted
    best, proba, nbest = model.predict(X), model.predict_proba(X), model.predict_nbest(X, 4)
    log_p, once = model.predict_log_proba_sequence(X, y), model.predict(X, valid="once")
    found, spans = model.decode_closure(X), model.predict_spans(X)
    one_a = model.predict(X, valid=lambda segments: sum(s[2] == "a" for s in segments) <= 1)
    drawn = model.sample(X, 3, random_state=0)
    for s, (x, gold) in enumerate(zip(X, covered(y, X), strict=True)):
        every, values = enumerated(model, x)
        p, order = np.exp(values - logsumexp(values)), np.argsort(-values, kind="stable")
        written = [[(i, j, model.classes_[k]) for i, j, k in one] for one in every]
        inside = [[segment for segment in one if segment[2] != "O"] for one in written]
        assert best[s] == inside[order[0]] == found[s][0]
        assert nbest[s][0] == [inside[k] for k in order[:4]]
        assert_allclose(nbest[s][1], np.log(p[order[:4]]), rtol=1e-9, atol=1e-11)
        assert_allclose(log_p[s], np.log(p[written.index(gold)]), rtol=1e-9, atol=1e-11)
        mu = np.zeros((x.n_steps, 3))
        for one, q in zip(every, p, strict=True):
            for i, j, k in one:
                mu[i:j, k] += q
        assert_allclose(proba[s], mu, atol=1e-11)
        for span in spans[s]:
            has = [tuple(span[:3]) in one for one in written]
            assert_allclose(span.probability, p[has].sum(), atol=1e-10)
        for answer, labels in ((once, "ab"), (one_a, "a")):
            good = [
                k
                for k in order
                if all(sum(seg[2] == name for seg in inside[k]) <= 1 for name in labels)
            ]
            assert answer[s] == inside[good[0]]
        assert all(one in inside for one in drawn[s])


def test_labels_at_most_once_where_repetition_scores_high(fitted):
    model, X, _ = fitted
    model, rng, repeats = clone_fitted(model), np.random.default_rng(0), 0
    for _ in range(4):
        model.transition_coef_.data = rng.normal(2, 3, len(model.transition_coef_.data))
        once = model.predict(X, valid="once")
        for s, x in enumerate(X):
            every, values = enumerated(model, x)
            order = np.argsort(-values, kind="stable")
            good = [k for k in order if is_once(model, every[k])]
            repeats += good[0] != order[0]
            expected = [(i, j, model.classes_[k]) for i, j, k in every[good[0]]]
            assert once[s] == [segment for segment in expected if segment[2] != "O"]
    assert repeats > 10


def clone_fitted(model):
    return pickle.loads(pickle.dumps(model))


def is_once(model, segments):
    labels = [k for _, _, k in segments if model.classes_[k] != "O"]
    return len(labels) == len(set(labels))


def test_saved_and_cloned_models_and_warm_starts(fitted):
    model, X, y = fitted
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict_nbest(X, 2)[3][1], model.predict_nbest(X, 2)[3][1])
    other = clone(model).set_params(warm_start=True).fit(X, y)
    n_iter = other.n_iter_
    assert other.fit(X, y).n_iter_ < n_iter
    assert_allclose(other.objective_, model.objective_, rtol=1e-3)


def test_calibration_divides_the_weights_of_pairs():
    X, y = problem(6, n_sequences=30, longest=5)
    plain = SemiCRFSegmenter(l2=0.05, transition_features=COLUMNS).fit(X, y)
    model = clone(plain).set_params(calibrate=3).fit(X, y)
    assert model.temperature_ != 1
    assert_allclose(
        model.transition_coef_.toarray() * model.temperature_, plain.transition_coef_.toarray()
    )
    assert list(model.predict(X)) == list(plain.predict(X))


def test_names_in_pipelines_searches_and_rerankers():
    X, y = make_citations(30, random_state=0)
    features = SegmentFeatures(TokenFeatures(), min_count=2, transition_features="^(start|before):")
    model = make_pipeline(features, SemiCRFSegmenter(l2=0.1)).fit(X, y)
    names = model[:-1].get_feature_names_out()
    top = model[-1].top_transition_features(5, feature_names=names)
    assert len(top) == 5
    assert all(re.match("start:|before:", name) for *_, name in top)
    potentials = features.transform(X)
    assert potentials[:3].roles is potentials.roles
    assert_array_equal(pickle.loads(pickle.dumps(potentials)).roles, potentials.roles)
    by_number = SemiCRFSegmenter(l2=0.1, transition_features=potentials.roles == 3)
    plain = SegmentFeatures(TokenFeatures(), min_count=2).fit_transform(X)
    assert by_number.fit(plain, y).objective_ == model[-1].objective_
    search = GridSearchCV(model, {"semicrfsegmenter__l2": [0.1, 1.0]}, cv=2).fit(X, y)
    assert 0 < search.best_score_ <= 1
    assert len(SegmentReranker(model, cv=2, text=False).fit(X, y).predict(X)) == 30


def test_names_of_dicts_and_columns_of_tokens():
    X = [[{"w": "of", "the": 1.0}, {"w": "a"}], [{"w": "a"}, {"w": "of", "the": 1.0}]] * 3
    y = [[(0, 1, "x"), (1, 2, "y")], [(0, 2, "x")]] * 3
    model = SemiCRFSegmenter(l2=0.1, transition_features="^w:", calibrate=2).fit(X, y)
    assert {name for *_, name in model.top_transition_features()} <= {"w:of", "w:a"}
    rows = TemplateFeatures("U:%x[0,0]\n*1:%x[0,0]", bos_eos=False).fit_transform(
        [["of", "a"], ["a", "of"]] * 3
    )
    assert SemiCRFSegmenter(l2=0.1).fit(rows, y).transition_coef_.nnz
    assert SegmentPotentials.from_tokens(rows, (1, 2)).roles.tolist() == rows.roles.tolist() * 2


def test_refusals():
    X, y = problem(7)
    with pytest.raises(ValueError, match="by name, and X has no names"):
        SemiCRFSegmenter(transition_features="start").fit(X, y)
    ends = SegmentPotentials.from_list([(2, [2, 2], [0, 1], [1, 2], np.ones((2, 1)))] * 2)
    with pytest.raises(ValueError, match="no column of a potential of one step"):
        SemiCRFSegmenter(transition_features=[0]).fit(ends, [[(0, 2, "a")], [(0, 1, "a")]])
    inner = TokenFeatures(transition_features=r"\.lower=")
    with pytest.raises(ValueError, match="transition_features of SegmentFeatures"):
        SegmentFeatures(inner).fit([["a", "b"]])
    only_pairs = TemplateFeatures("U:%x[0,0]\nB1:%x[0,0]", bos_eos=False).fit_transform([["a"] * 2])
    with pytest.raises(ValueError, match="pairs of labels only"):
        SemiCRFSegmenter().fit(only_pairs, [[(0, 1, "x")]])


def in_time(model, x, most):
    """Segments of ``max_latency=most`` by enumeration: of the best segmentation so far, the first
    segment leaves when its first step has waited for more than ``most`` others."""
    given, first = [], 0
    for n in range(1, x.n_steps + 1):
        while n - first > most or (n == x.n_steps and first < n):
            known = np.flatnonzero(x.stop <= n)
            rows = (np.asarray(part)[known] for part in (x.kind, x.start, x.stop))
            part = SequencePotentials(n, *rows, x.rows[known])
            every, scores = enumerated(model, part)
            scores -= [model.end_[s[-1][2]] * (n < x.n_steps or n - first > most) for s in every]
            agree = [k for k, s in enumerate(every) if s[: len(given)] == given]
            best = every[max(agree, key=lambda k: scores[k])]
            given.append(best[len(given)])
            first = given[-1][1]
    return given


@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_bounded_latency_is_that_of_enumeration(fitted, most):
    model, X, y = fitted
    decoder = OnlineDecoder(FrozenEstimator(model), strategy="closure", max_latency=most).fit(X, y)
    for x, labels in zip(X, decoder.decode(X).labels):
        found = [(i, j, model.classes_[k]) for i, j, k in in_time(model, x, most)]
        expected = segments_to_labels([s for s in found if s[2] != "O"], x.n_steps)
        assert labels.tolist() == list(expected)


def test_features_of_large_units_converge():
    X, y = problem(8, n_sequences=30)
    large = SegmentPotentials(
        X.lengths, X.offsets, X.kind, X.start, X.stop, X.rows * 1e4, row=X.row
    )
    model = SemiCRFSegmenter(l2=1e-8, transition_features=COLUMNS, tol=1e-6).fit(large, y)
    assert model.n_iter_ < 400
    source = SegmentSource.read(large, y, None, "O")
    assert_allclose(
        descend(SegmentProblem(clone(model).set_params(tol=1e-8), source)).value,
        model.objective_,
        rtol=1e-5,
    )


# ---------------------------------------------------------------------------- forbidden pairs

FORBIDDEN = [("a", "b"), (None, "b"), ("O", None)]


def obey(segments, n):
    """Whether no forbidden pair stands in a segmentation of n steps."""
    labels = [None, *(label for *_, label in segments), None]
    return n == 0 or not any(pair in FORBIDDEN for pair in itertools.pairwise(labels))


def obedient(seed, **options):
    X, y = problem(seed, n_sequences=60, longest=4, **options)
    kept = [
        s for s, (n, one) in enumerate(zip(X.lengths, covered(y, X), strict=True)) if obey(one, n)
    ]
    return X[kept], [y[s] for s in kept]


@pytest.mark.parametrize("options", [{}, {"transition_features": COLUMNS}], ids=str)
@pytest.mark.parametrize("loss", ["log", "softmax-margin"])
def test_training_under_constraints(loss, options):
    X, y = obedient(1)
    model = SemiCRFSegmenter(l2=0.3, loss=loss, constraints=FORBIDDEN, **options).fit(X, y)
    if not options:
        assert model.transition_coef_ is None
        model.transition_coef_ = sparse.csr_matrix((5, 9))
    total, nbest = 0.0, model.predict_nbest(X, 5)
    for s, (x, gold) in enumerate(zip(X, covered(y, X), strict=True)):
        every, values = enumerated(model, x)
        written = [[(i, j, model.classes_[k]) for i, j, k in one] for one in every]
        allowed = np.array([obey(one, x.n_steps) for one in written])
        assert_array_equal(values > -np.inf, allowed)
        truth = codes_of(model, gold)
        costs = [wrong_steps(one, truth) * (loss != "log") for one in every]
        total += logsumexp(values + costs) - values[every.index(truth)]
        order = np.argsort(-values, kind="stable")[: min(5, allowed.sum())]
        best = [[seg for seg in written[k] if seg[2] != "O"] for k in order]
        assert nbest[s][0] == best
        assert_allclose(nbest[s][1], (values - logsumexp(values))[order], atol=1e-10)
    parts = [model.coef_, model.transition_, model.start_, model.end_, model.transition_coef_.data]
    ridge = sum(np.square(np.where(np.isfinite(part), part, 0)).sum() for part in parts)
    assert_allclose(model.objective_, total + 0.3 * ridge, rtol=1e-10)
    calibrated = clone(model).set_params(calibrate=2).fit(X, y)
    assert list(calibrated.predict(X)) == list(model.predict(X))


@pytest.mark.parametrize("options", [{}, {"transition_features": COLUMNS}], ids=str)
def test_hinge_under_constraints(options):
    # The largest is that of allowed segmentations, whose scores are not -inf.
    X, y = obedient(1)
    free = SemiCRFSegmenter(l2=0.3, loss="hinge", tol=1e-5, random_state=0, **options).fit(X, y)
    model = clone(free).set_params(constraints=FORBIDDEN).fit(X, y)
    total, coef = 0.0, model.transition_coef_
    parts = [
        model.coef_,
        model.transition_,
        model.start_,
        model.end_,
        *([] if coef is None else [coef.data]),
    ]
    if coef is None:
        model.transition_coef_ = sparse.csr_matrix((5, 9))
    for s, (x, gold) in enumerate(zip(X, covered(y, X), strict=True)):
        every, values = enumerated(model, x)
        truth = codes_of(model, gold)
        costs = [wrong_steps(one, truth) for one in every]
        total += max(values + costs) - values[every.index(truth)]
        written = [(i, j, model.classes_[k]) for i, j, k in every[int(np.argmax(values))]]
        assert [one for one in written if one[2] != "O"] == list(model.predict(X))[s]
    ridge = sum(np.square(np.where(np.isfinite(part), part, 0)).sum() for part in parts)
    assert_allclose(model.objective_, total + 0.3 * ridge, rtol=1e-10)
    assert model.objective_ < 0.999 * free.objective_
    assert_array_equal(
        np.isinf(model.transition_), [[False] * 3, [False, False, True], [False] * 3]
    )


def test_wrong_constraints_are_refused():
    X, y = obedient(2)
    for constraints, message in [
        ("ab", "list of forbidden pairs"),
        (["ab"], "list of forbidden pairs .* got 'ab'"),
        ([(None, None)], r"got \(None, None\)"),
        ([("a", "c")], "constraints names 'c', which is not a label; labels are"),
        ([(label, None) for label in "Oab"], r"of y makes the pair \('.', None\), which"),
        ([(None, label) for label in "Oab"], r"of y makes the pair \(None, '.'\), which"),
        (list(itertools.product("Oab", repeat=2)), r"of y makes the pair \('.', '.'\), which"),
    ]:
        with pytest.raises(ValueError, match=message):
            SemiCRFSegmenter(constraints=constraints).fit(X, y)
    s = int(np.argmax(X.lengths))
    unknown = [[(0, int(X.lengths[s]), None)] if k == s else one for k, one in enumerate(y)]
    with pytest.raises(ValueError, match="constraints do not support unknown segments"):
        SemiCRFSegmenter(constraints=FORBIDDEN).fit(X, unknown)


@pytest.mark.parametrize(
    "options", [{}, {"transition_features": COLUMNS}, {"loss": "hinge"}], ids=str
)
def test_explanations_add_up_to_the_score(options):
    X, y = problem(9, n_sequences=20, longest=4, dense=False)
    model = SemiCRFSegmenter(l2=0.05, **options).fit(X, y)
    names, spans = [f"f{k}" for k in range(5)], model.predict_spans(X)
    pairs = False
    for s, x in enumerate(X):
        rows = model.explain(x, feature_names=names)
        named = [row for row in rows if row.label != "O"]
        assert [row[:3] for row in named] == [span[:3] for span in spans[s]]
        # One sequence alone and all together are added up in different orders.
        probabilities = [np.array([x[3] for x in given], float) for given in (named, spans[s])]
        assert_allclose(*probabilities, rtol=1e-12)  # NaN for None
        terms = [term for row in rows for term in row.contributions]
        if model.transition_coef_ is None:
            model.transition_coef_ = sparse.csr_matrix((5, 9))
        best = enumerated(model, x)[1].max()
        assert_allclose(sum(score for _, score in terms), best, rtol=1e-9, atol=1e-12)
        pairs |= any(re.fullmatch(r"f\d, . → .", name) for name, _ in terms)
    assert pairs == ("transition_features" in options)
    words = [["of", "a"], ["a"]] * 3
    texts = make_pipeline(SegmentFeatures(TokenFeatures()), SemiCRFSegmenter(l2=0.1))
    found = explain(texts.fit(words, [[(0, 1, "x")], [(0, 1, "y")]] * 3), words[0])
    assert found[0].label == "x"
    assert any(name.startswith("start:") for name, _ in found[0].contributions)
