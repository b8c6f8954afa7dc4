"""Margin training by several threads, which update different blocks at the same time."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from sklseq import HMSVMTagger
from sklseq._lib.threads import Threads
from sklseq.data.constraints import resolve_constraints
from sklseq.estimators.hmsvm import margin_problem
from sklseq.objectives.margin.gram_threads import SIZE
from sklseq.objectives.margin.hinge import Margin, PathLoss, StructuredHinge
from sklseq.solvers import bcfw


def problem(n, alike=False, seed=0):
    """(rows, offsets, labels) of n sequences, 12 of 60 columns in each row; or n times the same."""
    rng = np.random.default_rng(seed)
    lengths = np.full(n, 5) if alike else rng.integers(1, 9, n)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    columns = np.array([rng.choice(60, 12, replace=False) for _ in range(offsets[-1])])
    rows = np.zeros((offsets[-1], 60))
    np.put_along_axis(rows, columns, rng.choice([0.5, 1.0, 2.0], columns.shape), axis=1)
    y = (rows @ rng.normal(size=(60, 3)) + rng.gumbel(size=(len(rows), 3))).argmax(axis=1)
    if alike:
        rows, y = np.tile(rows[:5], (n, 1)), np.tile(y[:5], n)
    return rows, offsets, y


def hinge_of(data, threads=None, slack="l1"):
    rows, offsets, y = data
    loss = PathLoss(1 - np.eye(3), 0.0)
    margin = Margin(loss, slack, resolve_constraints(None, np.arange(3)), 0.7, 1.3)
    source = np.exp(rows @ rows.T / 40)
    C = np.random.default_rng(1).uniform(0.1, 0.5, len(offsets) - 1)
    return StructuredHinge(source, offsets, y, C, margin, threads=threads)


def train(hinge, tol=2e-3, **effort):
    options = {"n_steps": 3, "n_searches": 2} | effort
    return bcfw(hinge, rng=np.random.default_rng(0), tol=tol, max_iter=300, **options)


def assert_weights_are_those_of_paths(hinge, data, slack="l1"):
    again = hinge_of(data, slack=slack)
    again._add_weights(hinge.support_paths())
    for found, sums in zip(hinge.weights(), again.weights()):
        assert_allclose(found, sums, atol=1e-9)


@pytest.mark.parametrize("n_jobs", [2, 3])
@pytest.mark.parametrize("slack", ["l1", "l2"])
def test_threads_reach_the_optimum_and_weights_are_those_of_the_paths(slack, n_jobs):
    data = problem(120)
    alone = train(hinge_of(data, slack=slack))
    with Threads(n_jobs) as threads:
        hinge = hinge_of(data, threads, slack)
        assert hinge.gram_threads is not None
        result = train(hinge)
    assert result.converged
    assert alone.converged
    assert result.n_iter <= 2 * alone.n_iter
    assert_allclose(result.value, alone.value, rtol=4e-3)  # both within tol
    assert_weights_are_those_of_paths(hinge, data, slack)


def test_steps_that_are_bad_together_shorten_rounds():
    # All sequences are the same, so that each thread makes the step that one alone should make.
    data = problem(64, alike=True)
    with Threads(4) as threads:
        hinge = hinge_of(data, threads, "l2")
        hinge.C[:] = 100.0
        result = train(hinge)
    assert hinge.gram_threads.size < SIZE  # 0 or 1, by rounding errors
    assert result.converged
    assert_weights_are_those_of_paths(hinge, data, "l2")


def test_passes_over_few_blocks_are_for_one_thread():
    data, gaps = problem(40), np.zeros(40)
    with Threads(2) as threads:
        hinge = hinge_of(data, threads)
        one = hinge_of(data)
        for blocks in (hinge.blocks[:0], hinge.blocks[30:31], hinge.blocks[::2].copy()):
            for each in (hinge, one):
                each.optimize(blocks, gaps, 3, 0.1, 2)
        for found, wanted in zip(hinge.weights(), one.weights()):
            assert_array_equal(found, wanted)
        hinge.optimize(hinge.blocks, gaps, 3, 0.1, 2)  # with scores of one's own rows again
    assert_weights_are_those_of_paths(hinge, data)
    a = hinge.kernel.arrays
    assert_allclose(a["S"], (hinge.gram @ a["coef"]).T, atol=1e-9)


def test_answers_of_a_number_of_threads_are_always_the_same(monkeypatch):
    monkeypatch.setattr(margin_problem, "WORTH_GRAM", 0)
    rows, offsets, y = problem(120)
    X = [rows[a:b] for a, b in zip(offsets, offsets[1:])]
    labels = [y[a:b] for a, b in zip(offsets, offsets[1:])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        taggers = [
            HMSVMTagger(kernel="rbf", n_jobs=n, max_iter=8, random_state=0).fit(X, labels)
            for n in (3, 3, 1)
        ]
    for name in ("dual_coef_", "transition_", "support_alpha_"):
        assert_array_equal(getattr(taggers[0], name), getattr(taggers[1], name))
    assert not np.array_equal(taggers[0].transition_, taggers[2].transition_)


def test_along_a_path_of_penalties_threads_go_on_from_the_weights_of_the_last():
    data = problem(120)
    with Threads(2) as threads:
        hinge = hinge_of(data, threads)
        train(hinge)
        hinge.rescale(2.0)
        assert train(hinge).converged
    assert_weights_are_those_of_paths(hinge, data)


def test_an_interrupt_between_calls_leaves_no_thread_waiting(monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    with Threads(2) as threads:
        hinge = hinge_of(problem(120), threads)
        monkeypatch.setattr(hinge, "optimize", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(hinge)
        monkeypatch.undo()
        assert train(hinge).converged
