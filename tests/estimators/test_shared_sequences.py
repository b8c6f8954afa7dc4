"""One long sequence by all threads: training and prediction, against one thread."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from sklseq import CRFTagger, HMSVMTagger
from sklseq._lib import threads
from sklseq._lib.threads import Threads
from sklseq.inference.chain.linear_chain import Workspace


@pytest.fixture(autouse=True)
def share_short_sequences(monkeypatch):
    monkeypatch.setattr(threads, "SHARED_ROWS", 2100)


def data(kind, n_labels=4, lengths=(3000, 7, 2200, 1, 0, 61)):
    rng = np.random.default_rng(8)
    X = [rng.normal(size=(n, 6)) for n in lengths]
    y = [np.argmax(x[:, :n_labels] + rng.normal(size=(len(x), n_labels)), axis=1) for x in X]
    X = X if kind == "dense" else [sparse.csr_matrix(np.where(x > 0.5, x, 0)) for x in X]
    return X, y


@pytest.mark.parametrize("n_labels", [2, 4, 6])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("n_jobs", [2, 3])
def test_threads_give_the_model_of_one(kind, n_labels, n_jobs):
    X, y = data(kind, n_labels)
    parameters = {"l2": 1, "solver": "lbfgs", "tol": 1e-9, "max_iter": 60}
    one, several, again = (CRFTagger(n_jobs=n, **parameters).fit(X, y) for n in (1, n_jobs, n_jobs))
    np.testing.assert_array_equal(several.coef_, again.coef_)
    np.testing.assert_allclose(several.coef_, one.coef_, atol=1e-6)
    np.testing.assert_allclose(several.transition_, one.transition_, atol=1e-6)
    other = one.set_params(n_jobs=n_jobs)
    for a, b in zip(other.predict_proba(X), several.set_params(n_jobs=1).predict_proba(X)):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_predictions_of_one_model(kind):
    X, y = data(kind)
    model = CRFTagger(max_iter=20).fit(X, y)
    proba, paths = model.predict_proba(X), model.predict(X)
    log_p = model.predict_log_proba_sequence(X, y)
    known = [[label if t % 9 == 0 else None for t, label in enumerate(labels)] for labels in y]
    given = model.predict_proba(X, known=known)
    model.set_params(n_jobs=2)
    np.testing.assert_allclose(model.predict_log_proba_sequence(X, y), log_p, rtol=1e-12)
    for got, want in (
        (model.predict_proba(X), proba),
        (model.predict_proba(X, known=known), given),
    ):
        for a, b in zip(got, want):
            np.testing.assert_allclose(a, b, atol=1e-12)
    for a, b in zip(model.predict(X), paths):
        np.testing.assert_array_equal(a, b)


def test_probabilities_of_each_long_sequence_take_all_threads(monkeypatch):
    X, y = data("dense")
    model, seen, run = CRFTagger(max_iter=20, n_jobs=2).fit(X, y), [], Workspace.forward_backward

    def forward_backward(work, *args):
        seen.append(isinstance(work.threads, Threads))
        return run(work, *args)

    monkeypatch.setattr(Workspace, "forward_backward", forward_backward)
    model.predict_proba(X)
    assert sum(seen) == 2


def test_partial_labels_and_smoothed_margins():
    X, y = data("dense")
    y[0] = [label if t % 3 else None for t, label in enumerate(y[0])]
    one, two = (CRFTagger(l2=1, n_jobs=n, tol=1e-9, max_iter=60).fit(X, y) for n in (1, 2))
    np.testing.assert_allclose(two.coef_, one.coef_, atol=1e-4)
    X, y = data("dense")
    one, two = (HMSVMTagger(solver="smoothing", n_jobs=n, tol=1e-2).fit(X, y) for n in (1, 2))
    np.testing.assert_allclose(two.coef_, one.coef_, atol=1e-6)


def test_values_that_are_not_finite_are_named():
    X, y = data("dense")
    model = CRFTagger(n_jobs=2).fit(X, y)
    X[0][2120, 3] = np.nan
    with pytest.raises(ValueError, match="row 2120 of sequence 0"):
        model.predict_proba(X)


def test_what_is_shared():
    offsets = np.array([0, 3000, 5000, 7100, 17000])

    def shared(n_jobs, *blocks):
        with Threads(n_jobs) as pool:
            return [pool.share(offsets, block) for block in blocks]

    each = [(s, s + 1) for s in range(4)]
    assert shared(2, *each) == [True, False, True, True]
    assert shared(4, *each) == [False, False, False, True]
    assert not any(shared(1, *each))
    assert shared(2, (0, 4)) == [False]  # several sequences


def test_threads_are_not_left_with_a_buffer_after_an_error(monkeypatch):
    from sklseq.objectives.likelihood.likelihood import LogLikelihood

    X, y = data("dense")
    seen = []
    compare = LogLikelihood.compare

    def interrupted(self, psi, block, chain, work, counts, entries=None):
        if isinstance(work.threads, Threads):
            seen.append(work)
            raise MemoryError
        return compare(self, psi, block, chain, work, counts, entries)

    monkeypatch.setattr(LogLikelihood, "compare", interrupted)
    with pytest.raises(MemoryError):
        CRFTagger(n_jobs=2).fit(X, y)
    assert len(seen) == 1
    assert seen[0].threads is None


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("slack", ["l1", "l2"])
def test_threads_share_the_slacks_and_losses_of_a_sequence(slack):
    X, y = data("dense")
    options = {"solver": "smoothing", "slack": slack, "C": 0.1, "max_iter": 5, "tol": 0.05}
    one, several = (HMSVMTagger(n_jobs=n, **options).fit(X, y) for n in (1, 2))
    assert_allclose(several.coef_, one.coef_, atol=1e-6)
    assert several.dual_gap_ == pytest.approx(one.dual_gap_, abs=1e-4)
