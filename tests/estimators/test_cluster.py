"""Shards on a Dask cluster of processes: the same numbers, and workers that are lost on purpose."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sklseq import CRFTagger, Shards
from sklseq.estimators.sources.shards import ShardError
from sklseq.features import DictFeatures

pytest.importorskip("dask.bag", reason="dask is not installed: pip install 'sklseq[dask]'")
distributed = pytest.importorskip(
    "distributed", reason="distributed is not installed: pip install 'sklseq[dask]'"
)
# Its comms and event loops tell of what we break on purpose.
pytestmark = pytest.mark.filterwarnings("ignore")

# Some 15 evaluations; both sides stop at the same one.
TIGHT = {"tol": 1e-3}


def tokens(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = [[{"a": f"v{rng.integers(12)}", "b": "uv"[rng.random() < 0.5]}
          for _ in range(rng.integers(0, 9))] for _ in range(n)]  # fmt: skip
    return X, [[t["b"] + t["a"][-1] if rng.random() < 0.8 else "u0" for t in x] for x in X]


def part(k, n_parts=3):
    X, y = tokens()
    return X[k::n_parts], y[k::n_parts]


def together(n_parts=3):
    parts = [part(k, n_parts) for k in range(n_parts)]
    return [x for X, _ in parts for x in X], [labels for _, y in parts for labels in y]


def delayed_parts(n_parts=3):
    from dask import delayed

    return [delayed(part)(k, n_parts) for k in range(n_parts)]


ROOT = str(Path(__file__).resolve().parents[2])


@pytest.fixture(scope="module", autouse=True)
def importable():
    """Workers import this file: Dask waits for ever for one that cannot."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)  # spawned processes get the path of this one
        yield


@pytest.fixture(scope="module", autouse=True)
def forked(importable):
    """Workers are forks of a process that has imported this file: a fifth of the time of each."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        yield
        return
    from multiprocessing import forkserver

    import dask

    forkserver.set_forkserver_preload([__name__])
    forkserver.ensure_running()  # now, for Dask would name other modules
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


def local_cluster(n_workers):
    return distributed.LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        silence_logs=50,
    )


@pytest.fixture(scope="module")
def client(forked):
    with local_cluster(2) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture
def mortal_client():
    """A cluster of its own for each test that kills: a nanny does not bring back a worker that dies
    before the nanny has heard that it lives, as one that a test before has killed may do."""
    with local_cluster(2) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture
def bag(client):
    import dask.bag

    X, y = together()
    return dask.bag.from_sequence(list(zip(X, y)), npartitions=3)


def kill(client, n):
    """Kill n of two workers; a nanny starts others."""
    pids = list(client.run(os.getpid).values())
    assert len(pids) == 2
    for pid in pids[:n]:
        os.kill(pid, signal.SIGKILL)


def during_iteration(monkeypatch, k, do):
    def after(number, value, w):
        if number == k:
            do()
        return False

    monkeypatch.setattr("sklseq.estimators.crf.monitor.iteration_hook", lambda *args: after)


# ---------------------------------------------------------------------------- the same numbers


@pytest.mark.parametrize(
    "parameters",
    [{}, {"l1": 0.3}, {"all_possible_states": True}, {"transition_features": "^b"}],
)
def test_delayed_shards_train_the_model_of_one_machine(client, parameters):
    X, y = together()
    here = CRFTagger(solver="owlqn" if "l1" in parameters else "lbfgs", **TIGHT, **parameters)
    here.fit(X, y)
    there = CRFTagger(**TIGHT, **parameters).fit(delayed_parts())
    assert there.feature_names_in_.tolist() == here.feature_names_in_.tolist()
    np.testing.assert_allclose(there.objective_, here.objective_, rtol=1e-9)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-6, atol=1e-6)
    if parameters.get("transition_features"):
        mine, theirs = (x.transition_coef_.toarray() for x in (there, here))
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)
    assert there.score(delayed_parts()) == pytest.approx(here.score(X, y), abs=1e-12)


def test_objective_to_1e9_at_any_point(client):
    from sklseq._lib.threads import Threads
    from sklseq.estimators.crf.crf_problem import score_map
    from sklseq.estimators.sources.cluster import ClusterSource
    from sklseq.estimators.sources.shard_source import LocalShardSource

    shards = Shards([part(k) for k in range(3)])
    values = []
    for source in (LocalShardSource(shards), ClusterSource(delayed_parts())):
        scores = score_map(CRFTagger(), source, source.summarise())
        f = source.likelihood(scores, 0.7, Threads(1))
        w = np.random.default_rng(1).normal(size=f.scores.n_weights)
        gradient = np.empty_like(w)
        values.append((f.value_and_gradient(w, gradient), gradient))
    np.testing.assert_allclose(values[1][0], values[0][0], rtol=1e-9)
    np.testing.assert_allclose(values[1][1], values[0][1], rtol=1e-9, atol=1e-9)


def test_bags_of_pairs_and_of_sequences_and_labels(client, bag):
    X, y = together()
    here = CRFTagger(solver="lbfgs", **TIGHT).fit(X, y)
    for there in (
        CRFTagger(**TIGHT).fit(bag),
        CRFTagger(**TIGHT).fit(bag.pluck(0), bag.pluck(1)),
    ):
        np.testing.assert_allclose(there.objective_, here.objective_, rtol=1e-9)
    assert here.score(bag) == pytest.approx(here.score(X, y), abs=1e-12)


def test_predict_on_bags_and_delayed_shards_is_lazy(client, bag):
    from dask import compute

    X, y = together()
    tagger = CRFTagger().fit(X, y)
    expected = tagger.predict(X)
    lazy = tagger.predict(bag.pluck(0))
    assert type(lazy).__name__ == "Bag"
    assert lazy.compute() == expected
    parts = compute(*tagger.predict(delayed_parts()))
    assert [labels for part in parts for labels in part] == expected


@pytest.mark.parametrize("n_shards", [2, 9])
def test_saved_shards_on_workers(client, tmp_path, n_shards):
    X, y = together()
    X = DictFeatures().fit_transform(X)
    for k, which in enumerate(np.array_split(np.arange(len(y)), n_shards)):
        X[which].save(tmp_path / f"{k:02}.npz", [y[s] for s in which])
    shards = Shards(tmp_path)
    here = CRFTagger(**TIGHT).fit(shards)
    there = CRFTagger(**TIGHT).fit(shards.to_delayed())
    np.testing.assert_allclose(there.objective_, here.objective_, rtol=1e-9)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-6, atol=1e-6)
    assert there.score(shards.to_delayed()) == pytest.approx(here.score(shards), abs=1e-12)


def test_the_same_bits_again(client):
    a, b = (CRFTagger(**TIGHT).fit(delayed_parts()) for _ in range(2))
    np.testing.assert_array_equal(a.coef_, b.coef_)


# ---------------------------------------------------------------------------- lost workers


@pytest.mark.parametrize("n", [1, 2])
def test_workers_killed_in_mid_fit(mortal_client, monkeypatch, n):
    X, y = together()
    here = CRFTagger(solver="lbfgs", **TIGHT).fit(X, y)
    during_iteration(monkeypatch, 5, lambda: kill(mortal_client, n))
    there = CRFTagger(**TIGHT).fit(delayed_parts())
    assert there.n_iter_ > 5
    np.testing.assert_allclose(there.objective_, here.objective_, rtol=1e-9)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-6, atol=1e-6)


def counted_part(k, folder):
    (folder / f"{k}-{time.time_ns()}").touch()
    return part(k)


def test_shards_of_killed_workers_are_made_again(mortal_client, monkeypatch, tmp_path):
    from dask import delayed

    # Both: of one worker's shards the other may have copies, and none is lost.
    during_iteration(monkeypatch, 3, lambda: kill(mortal_client, 2))
    CRFTagger(**TIGHT).fit([delayed(counted_part)(k, tmp_path) for k in range(3)])
    times_made = [len(list(tmp_path.glob(f"{k}-*"))) for k in range(3)]
    assert min(times_made) >= 2


@pytest.mark.parametrize(
    ("call", "error"), [(1, KeyError("tcp://127.0.0.1:1")), (4, OSError("timed out"))]
)
def test_data_that_does_not_arrive_is_sent_again(client, monkeypatch, call, error):
    # What the scheduler raises when a worker dies while data is on its way to it.
    X, y = together()
    scatter, calls = client.scatter, []

    def failing(*args, **options):
        calls.append(args)
        if len(calls) == call:
            raise error
        return scatter(*args, **options)

    monkeypatch.setattr(client, "scatter", failing)
    there = CRFTagger(**TIGHT).fit(delayed_parts())
    np.testing.assert_allclose(there.objective_, CRFTagger(**TIGHT).fit(X, y).objective_, rtol=1e-9)
    assert len(calls) > call


# ---------------------------------------------------------------------------- errors


def test_a_missing_shard_is_named(client, tmp_path):
    X, y = together()
    DictFeatures().fit_transform(X).save(tmp_path / "0.npz", y)
    shards = Shards([tmp_path / "0.npz", tmp_path / "none.npz"])
    tagger = CRFTagger()
    with pytest.raises(ShardError, match=r"Shard 1 \('.*none\.npz'\): .*There is no file"):
        tagger.fit(shards.to_delayed())
    assert not hasattr(tagger, "coef_")


def test_a_shard_of_another_width_is_named(client, tmp_path):
    from dask import delayed

    parts = [delayed((np.ones((2, 3, k)), [["a"] * 3, ["b"] * 3])) for k in (2, 2, 4)]
    with pytest.raises(ShardError, match="Shard 2: it has 4 features, shard 0 has 2"):
        CRFTagger().fit(parts)


def test_a_client_that_goes_away_leaves_nothing(monkeypatch):
    from sklseq.estimators.sources.cluster import ClusterError

    with local_cluster(1) as cluster, distributed.Client(cluster) as client:
        during_iteration(monkeypatch, 3, client.close)
        tagger = CRFTagger()
        with pytest.raises(ClusterError, match=r"client is clos.*nothing was fitted"):
            tagger.fit(delayed_parts())
    assert not hasattr(tagger, "coef_")


def test_no_worker_left(monkeypatch):
    import dask

    from sklseq.estimators.sources import cluster as _cluster

    monkeypatch.setattr(_cluster, "PATIENCE", "1s")
    monkeypatch.setitem(dask.config.get("distributed.comm.timeouts"), "connect", "2s")
    with local_cluster(1) as cluster, distributed.Client(cluster):

        def leave():
            cluster.scale(0)
            while cluster.scheduler.workers:
                time.sleep(0.05)

        during_iteration(monkeypatch, 3, leave)
        tagger = CRFTagger()
        with pytest.raises(_cluster.ClusterError, match=r"no worker left.*nothing was fitted"):
            tagger.fit(delayed_parts())
    assert not hasattr(tagger, "coef_")


def test_no_client():
    program = (
        "import dask\n"
        "from sklseq import CRFTagger\n"
        "CRFTagger().fit([dask.delayed(lambda: None)()])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "ClusterError: Training on Dask bags and delayed shards needs a client" in done.stderr


def test_steps_from_shard_to_shard_are_refused(client):
    with pytest.raises(ValueError, match="solver='adagrad' goes from one shard to the next"):
        CRFTagger(solver="adagrad").fit(delayed_parts())


def test_what_a_bag_must_hold(client, bag):
    with pytest.raises(ValueError, match=r"must hold pairs \(sequence, labels\)"):
        CRFTagger().fit(bag.pluck(0))
    with pytest.raises(ValueError, match="y must be a bag of as many"):
        CRFTagger().fit(bag.pluck(0), [["a"]])
    with pytest.raises(ValueError, match=r"Delayed shards are .*leave y out"):
        CRFTagger().fit(delayed_parts(), [["a"]])


# ---------------------------------------------------------------------------- without workers


class Emptied:
    """A client all of whose workers are away at the first ``n_times`` that data is sent."""

    status = "running"

    def __init__(self, n_times):
        self.left, self.waits = n_times, 0

    def scatter(self, value, **how):
        self.left -= 1
        if self.left >= 0:  # what distributed says then
            raise ValueError("Can not use replicate to delete data")
        return value

    def wait_for_workers(self, n, timeout):
        self.waits += 1


def emptied(n_times):
    from sklseq.estimators.sources.cluster import ClusterSource

    shards = object.__new__(ClusterSource)
    shards.client = Emptied(n_times)
    return shards


def test_data_is_sent_again_when_workers_are_back(monkeypatch):
    from sklseq.estimators.sources import cluster as _cluster

    monkeypatch.setattr(_cluster, "PAUSE", 0)
    shards = emptied(2)
    assert shards._insist(lambda: shards._send([1, 2])) == [1, 2]
    assert shards.client.waits == 2


def test_workers_that_never_stay_are_one_sentence(monkeypatch):
    from sklseq.estimators.sources import cluster as _cluster

    monkeypatch.setattr(_cluster, "PAUSE", 0)
    shards = emptied(_cluster.ATTEMPTS)
    with pytest.raises(
        _cluster.ClusterError, match=rf"were lost {_cluster.ATTEMPTS} times .* nothing was fitted"
    ):
        shards._insist(lambda: shards._send([1]))


def test_no_shards_at_all():
    from sklseq.estimators.sources.cluster import ClusterSource

    with pytest.raises(ValueError, match="X must hold at least one shard; got none"):
        ClusterSource([])
