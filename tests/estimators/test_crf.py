"""CRFTagger against slow references, and properties of its optimum that need none."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from sklseq import CRFTagger, Sequences
from sklseq.objectives.scores import score_map
from sklseq.objectives.scores.score_map import observed_support, padded_rows
from tests import reference
from tests.oracles import all_paths, kkt_residual, numerical_gradient
from tests.sample_data import make_data

# Sums of a few hundred float64 terms.
EXACT = {"rtol": 1e-10, "atol": 1e-10}
# Two optima of one strongly convex function, each found to a gradient of about 1e-6.
SAME_OPTIMUM = {"rtol": 1e-4, "atol": 1e-5}
# Threads change the order of sums, so iterates differ by amplified rounding.
SAME_SUMS = {"rtol": 1e-9, "atol": 1e-9}
# float32 weights, trained to where float32 gradients end.
SINGLE = {"rtol": 2e-2, "atol": 5e-3}
# Central differences of step 1e-5 on objectives near 100: truncation 1e-10, rounding 1e-9.
DIFFERENCES = 1e-5
SEEDS = range(3)

EVERYTHING = {"all_possible_states": True, "all_possible_transitions": True}
TIGHT = {"tol": 1e-9, "max_iter": 2000}


def make_binary(seed, n=20, M=12, L=3):
    """CSR rows of a few ones, so that observed states are fewer than all."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for s in range(n):
        T = int(rng.integers(1, 7))
        rows = rng.random((T, M)) < 0.2
        codes = (rows[:, :L] + rng.random((T, L))).argmax(axis=1)
        codes[0] = s % L
        X.append(sparse.csr_matrix(rows.astype(float)))
        y.append(codes)
    return X, y


def fit(X, y, sample_weight=None, **parameters):
    return CRFTagger(**{**TIGHT, **parameters}).fit(X, y, sample_weight)


def weights_of(model):
    """All trained weights as one vector, forbidden ones left out."""
    parts = [model.coef_, model.transition_, model.start_, model.end_]
    flat = np.concatenate([np.ravel(p) for p in parts])
    return flat[np.isfinite(flat)]


def assert_same_model(a, b, **tolerance):
    for name in ("coef_", "transition_", "start_", "end_"):
        assert_allclose(getattr(a, name), getattr(b, name), err_msg=name, **tolerance)


def dense(x):
    return x.toarray() if sparse.issparse(x) else np.asarray(x)


def unpack(w, M, L):
    cut = np.cumsum([M * L, L * L, L])
    coef, transition, start, end = np.split(w, cut)
    return coef.reshape(M, L), transition.reshape(L, L), start, end


def negative_log_likelihood(w, X, y, M, L, sample_weight=None):
    """The specification: -Σ_s weight_s log p(y_s | x_s) with every weight free."""
    coef, transition, start, end = unpack(w, M, L)
    total = 0.0
    for s, (x, labels) in enumerate(zip(X, y)):
        emission = dense(x) @ coef
        log_z = reference.forward_backward(emission, transition, start, end)[0]
        score = reference.score_path(labels, emission, transition, start, end)
        total += (1 if sample_weight is None else sample_weight[s]) * (log_z - score)
    return total


def penalised(w, X, y, M, L, l1, l2, sample_weight=None):
    likelihood = negative_log_likelihood(w, X, y, M, L, sample_weight)
    return likelihood + l1 * np.abs(w).sum() + l2 * (w**2).sum()


PENALTIES = {"l2": (0.0, 0.5), "l1": (0.7, 0.0), "elastic net": (0.4, 0.3)}


# ------------------------------------------------------------------ objective and optimum


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("every", [True, False], ids=["all", "observed"])
def test_objective_is_that_of_the_slow_reference(seed, penalty, every):
    X, y = make_binary(seed)
    l1, l2 = PENALTIES[penalty]
    weight = np.random.default_rng(seed).random(len(X))
    choice = {"all_possible_states": every, "all_possible_transitions": every}
    model = fit(X, y, weight, l1=l1, l2=l2, **choice)
    expected = penalised(weights_of(model), X, y, 12, 3, l1, l2, weight)
    assert_allclose(model.objective_, expected, **EXACT)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_optimality_conditions_hold_at_the_solution(seed, penalty):
    X, y = make_data(seed, M=3)
    l1, l2 = PENALTIES[penalty]
    w = weights_of(fit(X, y, l1=l1, l2=l2, **EVERYTHING))
    gradient = numerical_gradient(lambda v: penalised(v, X, y, 3, 3, 0, l2), w)
    assert kkt_residual(w, gradient, l1) < DIFFERENCES * 20


@pytest.mark.parametrize("seed", SEEDS)
def test_optimality_conditions_hold_over_observed_weights_only(seed):
    X, y = make_binary(seed, n=6, M=5)
    model = fit(X, y, l2=0.5)
    seen = observed_mask(X, y, 5, 3)
    w = weights_of(model)
    gradient = numerical_gradient(lambda v: penalised(v, X, y, 5, 3, 0, 0.5), w)
    assert_array_equal(w[~seen], 0)
    assert np.abs(gradient[seen]).max() < DIFFERENCES * 20
    assert not seen.all()


def observed_mask(X, y, M, L):
    """Which weights of the flat vector have an event in the training data."""
    coef, transition = np.zeros((M, L), bool), np.zeros((L, L), bool)
    start, end = np.zeros(L, bool), np.zeros(L, bool)
    for x, labels in zip(X, y):
        for row, label in zip(dense(x), labels):
            coef[row != 0, label] = True
        transition[labels[:-1], labels[1:]] = True
        start[labels[0]] = end[labels[-1]] = True
    return np.concatenate([coef.ravel(), transition.ravel(), start, end])


@pytest.mark.parametrize("seed", SEEDS)
def test_optimum_is_that_of_scipy(seed):
    X, y = make_data(seed, n=8, M=2)
    objective = lambda w: penalised(w, X, y, 2, 3, 0, 0.5)  # noqa: E731
    theirs = minimize(objective, np.zeros(2 * 3 + 9 + 6), method="L-BFGS-B")
    ours = fit(X, y, l2=0.5, **EVERYTHING)
    assert_allclose(ours.objective_, theirs.fun, rtol=1e-6)
    assert ours.objective_ <= theirs.fun * (1 + 1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_both_solvers_reach_the_same_l2_optimum(seed):
    X, y = make_data(seed)
    a, b = (fit(X, y, solver=solver) for solver in ("lbfgs", "owlqn"))
    assert_same_model(a, b, **SAME_OPTIMUM)


def test_boundaries_false_has_no_start_and_end_weights():
    X, y = make_data(0)
    model = fit(X, y, l2=1, boundaries=False, **EVERYTHING)
    assert_array_equal(model.start_, 0)
    assert_array_equal(model.end_, 0)
    expected = penalised(weights_of(model), X, y, 5, 3, 0, 1)
    assert_allclose(model.objective_, expected, **EXACT)
    assert model.objective_ > fit(X, y, l2=1, **EVERYTHING).objective_


def test_loss_curve_falls_to_the_objective():
    X, y = make_data(1)
    model = fit(X, y)
    curve = np.asarray(model.loss_curve_)
    assert (np.diff(curve) <= 1e-9 * np.abs(curve[0])).all()
    assert_allclose(curve[-1], model.objective_, **EXACT)
    assert model.n_iter_ in (len(curve), len(curve) - 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_expected_counts_equal_observed_counts_without_penalty(seed):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(6, 2)) for _ in range(60)]
    y = [rng.integers(0, 2, size=6) for _ in range(60)]  # noise: the optimum is finite
    model = fit(X, y, l2=1e-12, **EVERYTHING)
    rows, labels = np.concatenate(X), np.concatenate(y)
    marginals = np.concatenate(model.predict_proba(X))
    assert_allclose(rows.T @ marginals, rows.T @ np.eye(2)[labels], atol=1e-4)
    first = sum(p[0] for p in model.predict_proba(X))
    assert_allclose(first, np.bincount([labels[0] for labels in y], minlength=2), atol=1e-4)


def test_known_weights_are_recovered_from_their_samples():
    rng = np.random.default_rng(0)
    X, y = make_data(0, n=6, M=2, L=2)
    truth = fit(X, y, l2=0.05, **EVERYTHING)
    X = [rng.normal(size=(8, 2)) for _ in range(3000)]
    y = [paths[0] for paths in truth.sample(X, random_state=1)]
    again = CRFTagger(l2=1e-6, **EVERYTHING).fit(X, y)
    # 3000 sequences of 8 rows: standard errors of log-odds are about 0.05; four of them.
    for a, b in zip(truth.predict_proba(X[:50]), again.predict_proba(X[:50])):
        assert_allclose(a, b, atol=0.05)
    difference = lambda m: m.coef_[:, 1] - m.coef_[:, 0]  # noqa: E731
    assert_allclose(difference(again), difference(truth), atol=0.2)


# ------------------------------------------------------------------ invariances of training


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_doubling_data_and_penalty_changes_nothing(seed, penalty):
    X, y = make_data(seed)
    l1, l2 = PENALTIES[penalty]
    once = fit(X, y, l1=l1, l2=l2)
    twice = fit(X + X, y + y, l1=2 * l1, l2=2 * l2)
    assert_same_model(once, twice, **SAME_OPTIMUM)
    assert_allclose(twice.objective_, 2 * once.objective_, rtol=1e-8)


@pytest.mark.parametrize("seed", SEEDS)
def test_sample_weight_two_is_the_sequence_twice(seed):
    X, y = make_data(seed)
    weight = np.ones(len(X))
    weight[3] = 2
    assert_same_model(fit(X, y, weight), fit([*X, X[3]], [*y, y[3]]), **SAME_OPTIMUM)


@pytest.mark.parametrize("seed", SEEDS)
def test_sample_weight_zero_drops_the_sequence(seed):
    X, y = make_data(seed)
    weight = np.ones(len(X))
    weight[3] = 0
    kept = [s for s in range(len(X)) if s != 3]
    dropped = fit([X[s] for s in kept], [y[s] for s in kept], **EVERYTHING)
    assert_same_model(fit(X, y, weight, **EVERYTHING), dropped, **SAME_OPTIMUM)


@pytest.mark.parametrize("parameters", [{}, {"l1": 0.3}], ids=["l2", "l1"])
def test_float32_is_kept_and_close(parameters):
    X, y = make_data(2)
    single = CRFTagger(**parameters).fit([x.astype(np.float32) for x in X], y)
    double = CRFTagger(**parameters).fit(X, y)
    assert single.coef_.dtype == np.float32
    assert double.coef_.dtype == np.float64
    assert_same_model(single, double, **SINGLE)
    assert single.predict_proba([X[0].astype(np.float32)])[0].dtype == np.float32
    assert isinstance(single.objective_, float)


@pytest.mark.parametrize("every", [True, False], ids=["all", "observed"])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_dense_and_sparse_rows_agree(every, penalty):
    X, y = make_binary(4)
    l1, l2 = PENALTIES[penalty]
    choice = {"l1": l1, "l2": l2, "all_possible_states": every, "all_possible_transitions": every}
    rows = [dense(x) for x in X]
    a, b = fit(X, y, **choice), fit(rows, y, **choice)
    assert_allclose(a.objective_, b.objective_, rtol=1e-9)
    assert_same_model(a, b, **SAME_OPTIMUM)
    for p, q in zip(a.predict_proba(X), a.predict_proba(rows)):
        assert_allclose(p, q, **EXACT)


def test_values_other_than_one_are_weights_in_sparse_rows():
    X, y = make_data(3)
    for x in X:
        x[np.abs(x) < 0.5] = 0
    a = fit([sparse.csr_matrix(x) for x in X], y)
    assert_same_model(a, fit(X, y), **SAME_OPTIMUM)


def as_forms(X):
    """The same binary rows as attribute lists, dicts, CSR matrices, CSR arrays, Sequences."""
    sets = [[[f"a{k}" for k in np.flatnonzero(row)] for row in dense(x)] for x in X]
    dicts = [[dict.fromkeys(row, 1.0) for row in x] for x in sets]
    packed = Sequences.from_list([sparse.csr_matrix(dense(x)) for x in X])
    arrays = [sparse.csr_array(dense(x)) for x in X]
    return {"attributes": sets, "dicts": dicts, "packed": packed, "csr_array": arrays}


@pytest.mark.parametrize("form", ["attributes", "dicts", "packed", "csr_array"])
def test_every_input_form_gives_the_same_model(form):
    X, y = make_binary(5)
    other = as_forms(X)[form]
    a, b = fit(X, y), fit(other, y)
    assert_allclose(a.objective_, b.objective_, rtol=1e-9)
    for p, q in zip(a.predict_proba(X), b.predict_proba(other)):
        assert_allclose(p, q, rtol=1e-5, atol=1e-7)


def test_three_dimensional_arrays_are_sequences_of_equal_length():
    X = np.random.default_rng(0).normal(size=(6, 4, 3))
    y = np.random.default_rng(1).integers(0, 2, size=(6, 4))
    assert_same_model(fit(X, y), fit(list(X), list(y)), rtol=0, atol=0)
    assert np.asarray(fit(X, y).predict(X)).shape == (6,)


def test_feature_names_are_known_for_dicts_only():
    X, y = make_binary(5)
    named = fit(as_forms(X)["dicts"], y)
    assert set(named.feature_names_in_) <= {f"a{k}" for k in range(12)}
    assert len(named.feature_names_in_) == named.n_features_in_ == len(named.coef_)
    assert not hasattr(fit(X, y), "feature_names_in_")
    assert not hasattr(named.fit(X, y), "feature_names_in_")


def test_attributes_unseen_in_training_are_ignored():
    X, y = [[{"a": 1.0}, {"b": 1.0}]], [["u", "v"]]
    model = fit(X, y)
    known = model.predict_proba([[{"a": 1.0}, {}]])[0]
    assert_array_equal(model.predict_proba([[{"a": 1.0}, {"new": 3.0}]])[0], known)


@pytest.mark.parametrize("parameters", [{}, {"l1": 0.5}, EVERYTHING], ids=["l2", "l1", "all"])
def test_threads_agree_and_repeat(parameters):
    X, y = make_binary(6, n=400)
    one, two, again = (fit(X, y, n_jobs=n, **parameters) for n in (1, 2, 2))
    assert_same_model(two, again, rtol=0, atol=0)
    assert_allclose(one.objective_, two.objective_, rtol=1e-9)
    assert_same_model(one, two, rtol=1e-5, atol=1e-6)  # iterates amplify rounding
    two.set_params(n_jobs=1)
    for p, q in zip(two.predict_proba(X), again.predict_proba(X)):
        assert_allclose(p, q, **SAME_SUMS)


@pytest.mark.parametrize("seed", SEEDS)
def test_renaming_labels_permutes_the_model(seed):
    X, y = make_data(seed)
    new = np.array(["c", "a", "b"])  # 0 → column 2, 1 → 0, 2 → 1
    columns = np.array([2, 0, 1])
    a, b = fit(X, y), fit(X, [new[labels] for labels in y])
    assert_array_equal(b.classes_, ["a", "b", "c"])
    assert_allclose(b.coef_[:, columns], a.coef_, **SAME_OPTIMUM)
    assert_allclose(b.transition_[np.ix_(columns, columns)], a.transition_, **SAME_OPTIMUM)
    for p, q in zip(a.predict(X), b.predict(X)):
        assert_array_equal(new[p], q)


def test_sparsity_grows_with_l1_until_nothing_is_left():
    X, y = make_binary(7)
    zeros = [(weights_of(fit(X, y, l1=l1, l2=0.0)) == 0).sum() for l1 in (0.1, 1, 4, 1e4)]
    assert zeros == sorted(zeros)
    assert zeros[0] < zeros[2]
    assert zeros[-1] == 12 * 3 + 9 + 6


# ------------------------------------------------------------------ warm start, convergence


@pytest.mark.parametrize("l1", [0.0, 0.3])
def test_warm_start_from_the_optimum_stops_at_once(l1):
    X, y = make_data(0)
    model = fit(X, y, l1=l1, warm_start=True)
    first, objective = model.n_iter_, model.objective_
    model.set_params(tol=1e-5).fit(X, y)
    assert model.n_iter_ <= 2 < first
    assert model.objective_ <= objective * (1 + 1e-9)


def test_warm_start_goes_on_where_it_stopped():
    X, y = make_data(0)
    model = CRFTagger(max_iter=3, tol=1e-5, warm_start=True)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y)
    before = model.objective_
    model.set_params(max_iter=500).fit(X, y)
    assert model.loss_curve_[0] <= before * (1 + 1e-12)
    assert_allclose(model.objective_, fit(X, y).objective_, rtol=1e-4)


def test_warm_start_with_other_labels_or_features_is_an_error():
    X, y = make_data(0)
    model = CRFTagger(warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match=r"warm_start.*same|warm_start=True needs"):
        model.fit([x[:, :3] for x in X], y)
    with pytest.raises(ValueError, match=r"warm_start"):
        model.fit(X, [labels + 1 for labels in y])


def test_warm_start_with_other_attributes_of_the_same_number_is_an_error():
    y = [["u", "v"]]
    model = CRFTagger(warm_start=True).fit([[{"a": 1.0}, {"b": 1.0}]], y)
    with pytest.raises(ValueError, match="warm_start"):
        model.fit([[{"b": 1.0}, {"c": 1.0}]], y)


def test_warm_start_takes_attributes_in_another_order():
    X = [[{"a": 1.0, "t": "x"}, {"b": 1.0, "t": "y"}, {"a": 1.0}], [{"b": 2.0}, {"c": 1.0}]]
    y = [["u", "v", "u"], ["v", "u"]]
    options = {"transition_features": ["t:x", "t:y"], "tol": 1e-10, "warm_start": True}
    model = CRFTagger(**options).fit(X, y)
    expected, n = model.predict_proba(X), model.n_iter_
    model.fit(X[::-1], y[::-1])
    assert model.n_iter_ < n / 2
    for a, b in zip(model.predict_proba(X), expected, strict=True):
        assert_allclose(a, b, atol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_weight_0_leaves_sequences_out_of_partial_fit(seed):
    rng = np.random.default_rng(seed)
    X, y = make_data(seed)
    weights = rng.integers(0, 3, len(X))
    weights[0] = 1
    scaled = [x if w else 1e6 * x for x, w in zip(X, weights)]
    kept = np.flatnonzero(weights)
    classes = np.unique(np.concatenate(y))
    a, b = CRFTagger(), CRFTagger()
    for _ in range(3):
        a.partial_fit(scaled, y, classes=classes, sample_weight=weights)
        b.partial_fit(
            [X[s] for s in kept], [y[s] for s in kept], classes=classes,
            sample_weight=weights[kept],
        )  # fmt: skip
    assert_allclose(a.coef_, b.coef_, rtol=1e-12)
    assert a.n_seen_ == b.n_seen_


def test_too_few_iterations_warn_what_to_raise():
    X, y = make_data(0)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = CRFTagger(max_iter=1).fit(X, y)
    assert model.n_iter_ == 1
    assert len(model.predict(X)) == len(X)


def test_verbose_prints_a_line_an_iteration(capsys):
    X, y = make_data(0)
    model = CRFTagger(verbose=1).fit(X, y)
    assert len(capsys.readouterr().out.splitlines()) >= model.n_iter_
    CRFTagger().fit(X, y)
    assert capsys.readouterr().out == ""


# ------------------------------------------------------------------ constraints

IOB = ["B-x", "B-y", "I-x", "I-y", "O"]


def make_spans(seed, n=15):
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels = []
        while len(labels) < 6:
            kind = rng.choice(["x", "y", ""])
            more = [f"I-{kind}"] * int(rng.integers(0, 3))
            labels += [f"B-{kind}", *more] if kind else ["O"]
        X.append(rng.normal(size=(len(labels), 3)))
        y.append(labels)
    return X, y


def breaks_iob2(labels):
    before = ["O", *labels[:-1]]
    return any(b[0] == "I" and a[1:] != b[1:] for a, b in zip(before, labels))


@pytest.mark.parametrize("seed", SEEDS)
def test_iob2_is_never_broken(seed):
    X, y = make_spans(seed)
    model = fit(X, y, constraints="iob2", random_state=0)
    assert model.transition_[4, 2] == model.transition_[0, 3] == -np.inf
    assert_array_equal(np.isfinite(model.start_), [True, True, False, False, True])
    new = [3 * x for x in make_spans(seed + 50)[0]]
    assert not any(map(breaks_iob2, model.predict(new)))
    for paths, values in model.predict_nbest(new, 5):
        assert not any(map(breaks_iob2, paths))
        assert np.isfinite(values).all()
    assert not any(breaks_iob2(path) for paths in model.sample(new, 20) for path in paths)
    assert max(p[0, 2:4].max() for p in model.predict_proba(new)) == 0


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("solver", ["lbfgs", "owlqn"])
def test_constraints_take_part_in_training(seed, solver):
    X, y = make_spans(seed, n=6)
    codes = [np.searchsorted(IOB, labels) for labels in y]
    model = fit(X, y, l2=1, constraints="iob2", solver=solver, **EVERYTHING)
    value = 0.0
    for x, labels in zip(X, codes):
        emission = x @ model.coef_
        chain = emission, model.transition_, model.start_, model.end_
        value += reference.forward_backward(*chain)[0] - reference.score_path(labels, *chain)
    assert_allclose(model.objective_, value + (weights_of(model) ** 2).sum(), **EXACT)
    free = fit(X, y, l2=1, **EVERYTHING)
    assert model.objective_ < free.objective_


def test_mask_of_allowed_transitions():
    y = [["a", "a", "b"], ["b", "b"], ["a", "b"]]
    X = [np.random.default_rng(s).normal(size=(len(labels), 2)) for s, labels in enumerate(y)]
    model = fit(X, y, constraints=np.array([[True, True], [False, True]]))
    assert model.transition_[1, 0] == -np.inf
    log_p = model.predict_log_proba_sequence([X[0]], [["b", "a", "a"]])
    assert log_p == [-np.inf]
    labels, values = model.predict_nbest([X[0]], 50)[0]
    assert len(labels) == len(values) == 4  # aaa aab abb bbb
    assert_allclose(np.exp(values).sum(), 1, **EXACT)


def test_training_data_that_break_a_constraint_are_named():
    X, y = [np.ones((2, 1))] * 2, [["B-x", "I-x"], ["O", "I-x"]]
    with pytest.raises(ValueError, match=r"'I-x' may not follow 'O' at row 1 of sequence 1"):
        CRFTagger(constraints="iob2").fit(X, y)
    with pytest.raises(ValueError, match=r"'I-x' may not be the first label, at row 0 of seq.* 0"):
        CRFTagger(constraints="iob2").fit(X, [["I-x", "O"], ["O", "O"]])


# ------------------------------------------------------------------ answers


def enumerated(model, x):
    """(label paths, their probabilities) of one short sequence."""
    paths = model.classes_[all_paths(len(x), len(model.classes_))]
    return paths, np.exp(model.predict_log_proba_sequence([x] * len(paths), list(paths)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("boundaries", [True, False])
def test_answers_equal_enumeration(seed, boundaries):
    X, y = make_data(seed, max_len=5)
    model = CRFTagger(l2=0.1, boundaries=boundaries).fit(X, y)
    for x in X[:5]:
        paths, p = enumerated(model, x)
        assert_allclose(p.sum(), 1, **EXACT)
        assert_array_equal(model.predict([x])[0], paths[p.argmax()])
        marginals = [[p[paths[:, t] == j].sum() for j in model.classes_] for t in range(len(x))]
        assert_allclose(model.predict_proba([x])[0], marginals, **EXACT)
        best, values = model.predict_nbest([x], 4)[0]
        assert_allclose(np.exp(values), np.sort(p)[::-1][:4], **EXACT)
        again = model.predict_log_proba_sequence([x] * len(best), list(best))
        assert_allclose(again, values, **EXACT)


def test_samples_follow_the_probabilities():
    X, y = make_data(3, max_len=3)
    model = CRFTagger(l2=0.1).fit(X, y)
    x = np.random.default_rng(0).normal(size=(3, 5))
    paths, p = enumerated(model, x)
    n = 20_000
    drawn = model.sample([x], n, random_state=0)[0]
    assert drawn.shape == (n, 3)
    counts = [(drawn == path).all(axis=1).sum() for path in paths]
    assert sum(counts) == n
    # Five standard errors of each frequency, and 1e-3 for the rarest.
    assert (np.abs(np.array(counts) / n - p) < 5 * np.sqrt(p * (1 - p) / n) + 1e-3).all()


def test_samples_repeat_with_the_same_random_state():
    X, y = make_data(3)
    model = CRFTagger(random_state=7).fit(X, y)
    for a, b in zip(model.sample(X, 3), model.sample(X, 3)):
        assert_array_equal(a, b)
    a, b = (np.concatenate(model.sample(X, 3, random_state=s), axis=1) for s in (1, 2))
    assert not np.array_equal(a, b)


def test_potentials_are_the_linear_scores():
    X, y = make_data(1)
    model = CRFTagger().fit(X, y)
    got = model.potentials(X)
    assert_allclose(got.emission, np.concatenate(X) @ model.coef_, **EXACT)
    assert_array_equal(got.offsets, np.cumsum([0, *map(len, X)]))
    assert_array_equal(got.transition, model.transition_)
    assert_array_equal(got.start, model.start_)
    assert_array_equal(got.end, model.end_)


@pytest.mark.parametrize("labels", [["x", "y", "z"], [10, 3, 7], [-1, 0, 5]], ids=str)
def test_labels_keep_their_kind(labels):
    X, y = make_data(0, labels=labels)
    model = CRFTagger().fit(X, y)
    assert_array_equal(model.classes_, np.unique(labels))
    for predicted in model.predict(X):
        assert {type(label) for label in predicted} == {type(labels[0])}
        assert set(predicted) <= set(labels)
    assert model.score(X, y) > 1 / 3


def test_boolean_labels():
    X, y = make_data(0, L=2)
    model = CRFTagger().fit(X, [labels.astype(bool) for labels in y])
    assert_array_equal(model.classes_, [False, True])
    assert {type(label) for label in model.predict(X)[0]} == {bool}


@pytest.mark.parametrize("kind", [list, np.array], ids=["list", "array"])
def test_equal_length_binary_labels_are_not_a_multilabel_target(kind):
    X, y = make_data(0, L=2, min_len=4, max_len=4)
    y = kind([kind(labels) for labels in y])
    model = CRFTagger().fit(X, y)
    predicted = model.predict(X)
    assert np.asarray(predicted).shape == (len(X),)
    assert {len(p) for p in predicted} == {4}
    agree = np.concatenate(predicted) == np.concatenate([np.asarray(v) for v in y])
    assert model.score(X, y) == agree.mean()


def test_score_weights_sequences():
    X, y = make_data(0)
    model = CRFTagger().fit(X, y)
    weight = np.arange(len(X), dtype=float)
    right = np.concatenate([np.array(p) == t for p, t in zip(model.predict(X), y)])
    expected = np.average(right, weights=np.repeat(weight, list(map(len, X))))
    assert_allclose(model.score(X, y, sample_weight=weight), expected, **EXACT)


EMPTY = {
    "array": np.zeros((0, 5)),
    "list": [],
    "sparse": sparse.csr_matrix((0, 5)),
}


@pytest.mark.parametrize("kind", EMPTY)
@pytest.mark.parametrize("where", [0, 3, -1])
def test_empty_sequences_change_nothing(kind, where):
    X, y = make_data(0)
    if kind == "sparse":
        X = [sparse.csr_matrix(x) for x in X]
    at = where % (len(X) + 1)
    more, labels = [*X[:at], EMPTY[kind], *X[at:]], [*y[:at], [], *y[at:]]
    model = CRFTagger().fit(more, labels)
    assert_same_model(model, CRFTagger().fit(X, y), **SAME_SUMS)
    assert len(model.predict(more)[at]) == 0
    assert model.predict_proba(more)[at].shape == (0, 3)
    assert model.predict_log_proba_sequence(more, labels)[at] == 0
    paths, values = model.predict_nbest(more, 3)[at]
    assert np.shape(paths) == (1, 0)
    assert_array_equal(values, [0])
    assert model.sample(more, 2, random_state=0)[at].shape == (2, 0)
    assert_allclose(model.score(more, labels), model.score(X, y))


@pytest.mark.parametrize("X", [[[]], [[], []], [np.zeros((0, 5))]], ids=str)
def test_prediction_of_nothing_but_empty_sequences(X):
    model = CRFTagger().fit(*make_data(0))
    assert [len(labels) for labels in model.predict(X)] == [0] * len(X)
    assert [p.shape for p in model.predict_proba(X)] == [(0, 3)] * len(X)
    assert len(model.predict_nbest(X, 2)) == len(X)


def test_sequences_of_one_row():
    X, y = make_data(0, max_len=1, n=30)
    model = fit(X, y, **EVERYTHING)
    assert_allclose(model.transition_, 0, atol=1e-12)
    _paths, p = enumerated(model, X[0])
    assert_allclose(p.sum(), 1, **EXACT)


def test_one_label_only_fits_and_warns():
    X = [np.ones((2, 1)), np.ones((3, 1))]
    y = [["a", "a"], ["a", "a", "a"]]
    with pytest.warns(UserWarning, match=r"one label only \('a'\)"):
        model = CRFTagger().fit(X, y)
    assert model.predict(X) == y
    assert_allclose(np.concatenate(model.predict_proba(X)), 1)
    assert_allclose(model.predict_log_proba_sequence(X, y), 0, atol=1e-12)


def test_large_feature_values_do_not_overflow():
    X, y = make_data(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = CRFTagger(max_iter=30).fit([1e4 * x for x in X], y)
    assert np.isfinite(model.objective_)
    assert np.isfinite(model.coef_).all()
    assert_allclose([p.sum() for p in model.predict_proba(X)], list(map(len, X)))


# ------------------------------------------------------------------ inspection


def test_top_features_and_transitions_are_sorted_and_true():
    X, y = make_binary(5)
    model = fit(as_forms(X)["dicts"], y)
    names = list(model.feature_names_in_)
    top = model.top_features(7)
    assert len(top) == 7
    magnitudes = [abs(weight) for weight, _, _ in top]
    assert magnitudes == sorted(magnitudes, reverse=True)
    assert magnitudes[0] == np.abs(model.coef_).max()
    for weight, label, name in top:
        assert weight == model.coef_[names.index(name), list(model.classes_).index(label)]
    for weight, i, j in model.top_transitions(4):
        assert weight == model.transition_[i, j]


def test_explanations_add_up_to_the_score_of_the_path():
    X, y = make_binary(5)
    model = fit(X, y)
    x = max(X, key=lambda x: x.shape[0])
    rows = model.explain(x)
    path = model.predict([x])[0]
    assert_array_equal([row.label for row in rows], path)
    total = sum(value for row in rows for _, value in row.contributions)
    chain = dense(x) @ model.coef_, model.transition_, model.start_, model.end_
    assert_allclose(total, reference.score_path(path, *chain), **EXACT)
    proba = model.predict_proba([x])[0]
    assert_allclose([row[1] for row in rows], proba[np.arange(len(path)), path], **EXACT)


def test_decoding_uses_the_fitted_weights_where_they_are():
    rng = np.random.default_rng(3)
    X = [sparse.csr_matrix(rng.integers(0, 2, (5, 4)).astype(float)) for _ in range(6)]
    tagger = CRFTagger().fit(X, [["a", "b", "c", "b", "a"]] * 6)
    assert np.shares_memory(padded_rows(tagger.coef_), tagger.coef_)
    wide = np.ones((4, 4))
    rows = padded_rows(wide[:, :3])  # a view whose neighbours are not padding
    assert not np.shares_memory(rows, wide)
    assert_array_equal(rows, [[1, 1, 1, 0]] * 4)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_what_is_observed_has_a_weight_and_nothing_else(form):
    rows = form(np.array([[1.0, 0], [0, 2], [0, 0], [0, 3]]))
    seen = observed_support(Sequences(rows, [0, 3, 3, 4]), np.array([0, 1, 2, 1]), 3)
    assert np.argwhere(seen.transition).tolist() == [[0, 1], [1, 2]]
    assert seen.pairs.tolist() == [0 * 3 + 0, 1 * 3 + 1]
    assert np.flatnonzero(seen.start).tolist() == [0, 1]
    assert np.flatnonzero(seen.end).tolist() == [1, 2]


def test_what_is_observed_late_has_a_weight():
    # Features that rows of a label lack at first, or always.
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (3 * score_map.HEAD, 5)) * np.eye(5)[rng.integers(0, 4, 5)].sum(
        axis=0
    )
    y, rows = rng.integers(0, 2, len(rows)), rows * (np.arange(len(rows)) % 7 > 2)[:, None]
    rows[:-9, 1] = 0
    found = observed_support(Sequences(rows, [0, len(rows)]), y, 2).pairs
    assert found.tolist() == [2 * j + k for j in range(5) for k in (0, 1) if rows[y == k, j].any()]
