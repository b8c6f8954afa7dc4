"""Margin training by several threads, which update sequences in rounds from the same weights."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from sklseq import HMSVMTagger
from sklseq._lib.threads import Threads
from sklseq.data.constraints import resolve_constraints
from sklseq.objectives.margin.hinge import Margin, PathLoss, StructuredHinge, linear_rows


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


def hinge_of(data, threads=None, linear=True, slack="l1"):
    rows, offsets, y = data
    loss = PathLoss(1 - np.eye(3), 0.0)
    margin = Margin(loss, slack, resolve_constraints(None, np.arange(3)), 0.7, 1.3)
    source = linear_rows(sparse.csr_matrix(rows)) if linear else np.exp(rows @ rows.T / 40)
    C = np.random.default_rng(1).uniform(0.1, 0.5, len(offsets) - 1)
    return StructuredHinge(source, offsets, y, C, margin, 0, 10**6, threads=threads)


def train(hinge, passes, seed=0):
    """Duals after each pass."""
    rng, gaps, duals = np.random.default_rng(seed), np.zeros(len(hinge.C)), []
    for _ in range(passes):
        hinge.optimize(rng.permutation(hinge.blocks), gaps, 3, 0.1, 2)
        duals.append(hinge.last_certificate().dual)
        hinge.revisit(rng.permutation(hinge.blocks), gaps, 3, 0.1)
        duals.append(hinge.last_certificate().dual)
    return np.array(duals)


@pytest.mark.parametrize("n_jobs", [2, 3])
@pytest.mark.parametrize("linear", [True, False], ids=["linear", "other"])
@pytest.mark.parametrize("slack", ["l1", "l2"])
def test_rounds_reach_the_optimum_and_weights_are_those_of_the_working_sets(slack, linear, n_jobs):
    data = problem(200)
    alone = hinge_of(data, linear=linear, slack=slack)
    train(alone, 15)
    with Threads(n_jobs) as threads:
        team = hinge_of(data, threads, linear, slack)
        assert team.team is not None
        duals = train(team, 15)
        certificate = team.last_certificate()
    assert (np.diff(duals) >= -1e-9 * duals[-1]).all()
    assert 0 <= certificate.gap <= 3 * alone.last_certificate().gap
    assert certificate.dual <= alone.last_certificate().primal
    assert certificate.primal >= alone.last_certificate().dual
    again = hinge_of(data, linear=linear, slack=slack)
    again._hold(team.support_paths())
    again._add_weights(team.support_paths())
    for found, sums in zip(team.weights(), again.weights()):
        assert_allclose(found, sums, atol=1e-9)


@pytest.mark.parametrize("linear", [True, False], ids=["linear", "other"])
@pytest.mark.parametrize("slack", ["l1", "l2"])
def test_steps_that_are_bad_together_are_shortened(slack, linear):
    # All sequences are the same, so that each of a round makes the step that one alone should.
    with Threads(4) as threads:
        hinge = hinge_of(problem(256, alike=True), threads, linear, slack)
        hinge.C[:] = 100.0
        duals = train(hinge, 8)
    assert (np.diff(duals) >= -1e-9 * duals[-1]).all()


def test_answers_of_a_number_of_threads_are_always_the_same():
    rows, offsets, y = problem(200)
    X = [sparse.csr_matrix(rows[a:b]) for a, b in zip(offsets, offsets[1:])]
    labels = [y[a:b] for a, b in zip(offsets, offsets[1:])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        taggers = [
            HMSVMTagger(solver="bcfw", n_jobs=n, max_iter=5, random_state=0).fit(X, labels)
            for n in (3, 3)
        ]
    assert_array_equal(taggers[0].coef_, taggers[1].coef_)
    assert_array_equal(taggers[0].transition_, taggers[1].transition_)
    assert_array_equal(taggers[0].support_alpha_, taggers[1].support_alpha_)


def test_an_interrupt_before_a_pass_leaves_no_thread_waiting(monkeypatch):
    data = problem(200)
    with Threads(2) as threads:
        hinge = hinge_of(data, threads)
        kernel = hinge.kernel

        class Interrupted:
            arrays = kernel.arrays

            def share(self, *args):
                kernel.share(*args)

            def run_rounds(self, *args):
                raise KeyboardInterrupt  # in either thread

        monkeypatch.setattr(hinge, "workers", [Interrupted(), hinge.workers[1]])
        with pytest.raises(KeyboardInterrupt):
            train(hinge, 1)
        monkeypatch.undo()
        assert len(hinge.support_paths().alpha) == 0
        assert (np.diff(train(hinge, 3)) > 0).all()
