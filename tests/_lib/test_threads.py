"""Threads: pieces in order, errors that do not depend on timing, interrupts that end all work."""

import multiprocessing
import threading
import time

import numpy as np
import pytest
from joblib import effective_n_jobs, parallel_config

from sklseq._lib.threads import Threads, n_threads, runs_of, spans
from sklseq.objectives.scores.design import _linear


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
@pytest.mark.parametrize("n_pieces", [0, 1, 3, 50])
def test_answers_come_in_the_order_of_the_pieces(n_jobs, n_pieces):
    def work(k):
        time.sleep(0.001 * (k % 3))
        return k * k

    with Threads(n_jobs) as threads:
        assert threads.map(work, iter(range(n_pieces))) == [k * k for k in range(n_pieces)]
        assert threads.map(str, range(n_pieces)) == [str(k) for k in range(n_pieces)]


@pytest.mark.filterwarnings("error")
def test_workers_of_a_pool_of_processes_have_threads(monkeypatch):
    cores = effective_n_jobs(-1)
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    assert [n_threads(n) for n in (1, 2, -1, None)] == [1, 2, cores, 1]
    with parallel_config(n_jobs=3):
        assert n_threads(None) == 3
    with Threads(2) as threads:
        assert threads.map(str, range(9)) == [*"012345678"]


def test_the_caller_works_too():
    with Threads(2) as threads:
        barrier = threading.Barrier(2, timeout=10)
        found = threads.map(lambda _: barrier.wait() >= 0 and threading.get_ident(), range(2))
    assert threading.get_ident() in found
    assert len(set(found)) == 2


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
def test_the_first_piece_that_fails_is_reported_whoever_is_faster(n_jobs):
    def work(k):
        if k == 3:
            time.sleep(0.02)  # the others fail long before
        if k >= 3:
            raise ValueError(f"piece {k}")

    with Threads(n_jobs) as threads:
        with pytest.raises(ValueError, match="piece 3"):
            threads.map(work, range(20))
        assert threads.map(str, range(3)) == ["0", "1", "2"]  # still good for work


def test_an_interrupt_stops_the_others_before_it_is_passed_on():
    done, caller = [], threading.get_ident()

    def work(k):
        if threading.get_ident() == caller:
            raise KeyboardInterrupt
        time.sleep(0.01)
        done.append(k)

    with Threads(2) as threads:
        with pytest.raises(KeyboardInterrupt):
            threads.map(work, range(1000))
        n = len(done)
        time.sleep(0.05)
    assert len(done) == n < 10


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [0, 1, 7, 1024, 3000])
def test_kinds_of_values(n, dtype):
    ones = np.ones(n, dtype)
    assert _linear.kind_of_values(ones) == _linear.ONES
    for k in {0, n // 2, n - 1} if n else ():
        for value, kind in (
            (2, _linear.FINITE),
            (0, _linear.FINITE),
            (np.inf, _linear.NOT_FINITE),
            (np.nan, _linear.NOT_FINITE),
        ):
            x = ones.copy()
            x[k] = value
            assert _linear.kind_of_values(x) == kind


@pytest.mark.parametrize("align", [1, 512])
@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize("n", [0, 1, 5, 1024, 3001])
def test_spans_cover_the_range(n, parts, align):
    found = spans(n, parts, align)
    assert len(found) <= parts
    assert [k for a, b in found for k in range(a, b)] == list(range(n))
    assert all(b > a and a % align == 0 for a, b in found)


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("sizes", [[5], [0, 0], [100] * 16 + [3], [3, 1, 4, 1, 5, 9, 2], [1, 90]])
def test_runs_are_cut_where_their_sizes_are_nearest_to_equal(sizes, parts):
    blocks = list(range(len(sizes)))
    found = runs_of(blocks, sizes, parts)
    assert [block for run in found for block in run] == blocks
    assert len(found) <= parts
    assert all(found)
    ends = np.cumsum([0, *sizes])
    cuts = [run[0] for run in found[1:]]
    for share in sum(sizes) * np.arange(1, parts) / parts:
        nearest = np.abs(ends - share).min()
        assert sum(sizes) == 0 or nearest in np.abs(ends[[0, *cuts, len(sizes)]] - share)
