"""Labels by marginals: enumeration of all paths, and argmax of predict_proba for every source."""

from itertools import chain, product
from tracemalloc import get_traced_memory, start, stop

import numpy as np
import pytest
from scipy import sparse
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, CRFTaggerCV, HMSVMTagger, RowBlocks, Shards
from sklseq.deployment import describe, export
from sklseq.estimators import block_sums
from sklseq.features import DictFeatures, TokenFeatures
from sklseq.inspection import spans
from sklseq.runtime import Decoder, load

LABELS = np.array(["B-x", "I-x", "O"])


def model(seed, L=3, M=4, forbid=False, pairs=False, dtype=np.float64):
    """A tagger with random weights, few of them, so that the best path is often another."""
    rng = np.random.default_rng(seed)
    tagger = CRFTagger(decode="marginal")
    tagger.classes_ = LABELS[:L] if L <= 3 else np.arange(L)
    tagger.n_features_in_, tagger.vectorizer_ = M, None
    tagger.coef_ = (0.4 * rng.normal(size=(M, L))).astype(dtype)
    tagger.transition_ = (rng.normal(size=(L, L))).astype(dtype)
    tagger.start_, tagger.end_ = 0.4 * rng.normal(size=(2, L)).astype(dtype)
    if forbid and L > 1:
        tagger.transition_[L - 1, 1] = -np.inf
    if pairs:
        dense = rng.normal(size=(M, L * L)) * (rng.random((M, L * L)) < 0.3)
        tagger.transition_coef_ = sparse.csr_matrix(dense, dtype=dtype)
    return tagger


def rows(T, seed=0, M=4):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(T, M)) * (rng.random((T, M)) < 0.6)


def enumerated(tagger, x, known=None):
    """The likeliest label of each row, from the scores of all paths one by one."""
    L, n = len(tagger.classes_), len(x)
    total, psi, pairs = np.zeros((n, L)), x @ tagger.coef_, np.zeros((n, L * L))
    if tagger.transition_coef_ is not None:
        pairs = x @ tagger.transition_coef_
    for path in product(range(L), repeat=n):
        if known is not None and any(
            k is not None and tagger.classes_[j] not in ({k} if isinstance(k, str) else k)
            for j, k in zip(path, known)
        ):
            continue
        score = tagger.start_[path[0]] + tagger.end_[path[-1]]
        for t, j in enumerate(path):
            score += psi[t, j]
            if t:
                score += tagger.transition_[path[t - 1], j] + pairs[t, path[t - 1] * L + j]
        total[np.arange(n), path] += np.exp(score)
    return tagger.classes_[total.argmax(axis=1)].tolist()


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("forbid", [False, True])
def test_labels_of_enumerated_paths(forbid, pairs):
    differ = 0
    for seed in range(16):
        tagger = model(seed, 1 + seed % 3, forbid=forbid, pairs=pairs)
        X = [rows(n, seed + n) for n in (1, 2, 5, 6)]
        expected = [enumerated(tagger, x) for x in X]
        assert tagger.predict([*X, np.zeros((0, 4))]) == [*expected, []]
        assert tagger.score(X, expected) == 1
        differ += tagger.set_params(decode="path").predict(X)[:-1] != expected[:-1]
    assert differ > 1


def test_known_labels():
    for seed in range(20):
        tagger, x = model(seed, forbid=seed % 2), rows(5, seed)
        known = [None, "B-x", None, {"O", "I-x"}, None]
        assert tagger.predict([x], known=[known]) == [enumerated(tagger, x, known)]


def most_probable(tagger, X, **options):
    return [tagger.classes_[p.argmax(axis=1)].tolist() for p in tagger.predict_proba(X, **options)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("L", [3, 30])
def test_every_source_gives_the_argmax_of_predict_proba(L, dtype, tmp_path, monkeypatch):
    monkeypatch.setattr(block_sums, "BLOCK_ROWS", 7)
    monkeypatch.setattr(block_sums, "IN_MEMORY", 1000)
    for pairs in (False, True):
        tagger = model(L, L, forbid=True, pairs=pairs, dtype=dtype)
        X = [rows(T, T).astype(dtype) for T in (40, 1, 0, 9)]
        expected = most_probable(tagger, X)
        blocks = [RowBlocks(lambda x=x: iter(np.split(x, [len(x) // 3]))) for x in X]
        # One rule for ties in all sources; other orders of sums differ by rounding only.
        assert tagger.predict(X) == tagger.predict([sparse.csr_matrix(x) for x in X]) == expected
        assert tagger.predict(blocks) == most_probable(tagger, blocks) == expected
        assert [source.n_reads for source in blocks] == [2] * len(X)
        assert [list(chain(*tagger.predict_blocks(x))) for x in blocks] == expected
        assert tagger.score(blocks, expected) == tagger.score(X, expected) == 1
        shards = Shards([(X[:2], expected[:2]), (X[2:], expected[2:])])
        assert tagger.predict(shards) == expected
        assert tagger.score(shards) == 1
        arrays = tagger.set_output(predict="array").predict(X)
        assert [found.tolist() for found in arrays] == expected


@pytest.mark.parametrize("pairs", [False, True])
def test_threads(pairs):
    tagger = model(1, pairs=pairs)
    X = [rows(20_000, 1), *(rows(900, k) for k in range(2, 6))]
    one = tagger.predict(X)
    assert one == most_probable(tagger, X)
    assert tagger.set_params(n_jobs=2).predict(X) == one
    assert tagger.score(X, one) == 1


def test_memory_does_not_grow_with_the_rows(monkeypatch):
    monkeypatch.setattr(block_sums, "IN_MEMORY", 1 << 16)
    tagger, block = model(0, 3, pairs=True), rows(4096)
    peaks = []
    for n in (2, 16):
        start()
        count = sum(map(len, tagger.predict_blocks(lambda n=n: (block for _ in range(n)))))
        peaks.append(get_traced_memory()[1])
        stop()
        assert count == n * 4096
    assert peaks[1] < 1.5 * peaks[0]


def trained(**options):
    X = [["Ann", "Lee", "sings"], ["it", "rains"], ["Lee", "Ann", "rains"], ["Ann", "rains"]]
    y = [["B-x", "I-x", "O"], ["O", "O"], ["B-x", "I-x", "O"], ["B-x", "O"]]
    return make_pipeline(TokenFeatures(), CRFTagger(l2=0.3, **options)).fit(X, y), X, y


def test_exported_models(tmp_path):
    for seed in range(10):
        tagger, X = model(seed), [rows(12, seed), rows(1, 2), np.zeros((0, 4))]
        named = [[dict(zip("abcd", x)) for x in sequence] for sequence in X]
        tagger.vectorizer_ = DictFeatures().fit(named)
        expected = tagger.predict(named)
        export(tagger, tmp_path / "model")
        decoder = load(tmp_path / "model")
        assert decoder.predict(named) == expected
        assert (
            expected[:2]
            == [
                [decoder.classes_[j] for j in p.argmax(axis=1)]
                for p in decoder.predict_proba(named)
            ][:2]
        )
        content = describe(tagger)
        del content["decode"]  # files of older versions
        assert Decoder(content).predict(named) == tagger.set_params(decode="path").predict(named)


def test_pipelines_searches_and_spans():
    pipeline, X, y = trained(decode="marginal")
    found = pipeline.predict(X)
    assert found == [
        pipeline.classes_[p.argmax(axis=1)].tolist() for p in pipeline.predict_proba(X)
    ]
    assert [span[:3] for span in spans(pipeline, X)[0]] == [(0, 2, "x")]
    grid = {"crftagger__decode": ["path", "marginal"]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X, y)
    assert len(search.cv_results_["params"]) == 2
    rows = pipeline[:-1].transform(X)
    chosen = CRFTaggerCV(l2s=[0.3], cv=2, decode="marginal").fit(rows, y)
    assert chosen.predict(rows) == most_probable(chosen, rows)


def test_folds_of_a_search_are_scored_by_the_decoding():
    X, truth = [rows(30, k) for k in range(6)], model(7)
    y = [labels[0].tolist() for labels in truth.sample(X, random_state=0)]

    def share(tagger, X, y):  # of rows whose label is that of predict_proba
        return np.mean(
            np.concatenate(tagger.predict(X)) == np.concatenate(most_probable(tagger, X))
        )

    scores = {
        decode: CRFTaggerCV(l2s=[0.1], cv=2, decode=decode, scoring=share).fit(X, y).best_score_
        for decode in ("path", "marginal")
    }
    assert scores["path"] < scores["marginal"] == 1


def test_spans_of_the_labels_of_rows():
    for seed in range(10):
        tagger, X = model(seed), [rows(20, seed)]
        labels = tagger.predict(X)[0]
        starts = [
            t
            for t, label in enumerate(labels)
            if label == "B-x" or (label == "I-x" and (t == 0 or labels[t - 1] == "O"))
        ]
        assert [span.start for span in tagger.predict_spans(X)[0]] == starts


def test_models_saved_before_find_paths():
    tagger, X = model(3), [rows(30)]
    state = tagger.__getstate__()
    del state["decode"]
    old = CRFTagger.__new__(CRFTagger)
    old.__setstate__(state)
    assert old.decode == "path"
    assert old.predict(X) == tagger.set_params(decode="path").predict(X)


@pytest.mark.parametrize("decode", ["Path", "viterbi", None, 1, ["path"], ("marginal",)])
def test_other_values_are_refused(decode):
    X, y = [rows(4)], [list("abab")]
    message = r"^decode must be one of \('path', 'marginal'\); got "
    for tagger in (CRFTagger(decode=decode), CRFTaggerCV(decode=decode, cv=2)):
        with pytest.raises(ValueError, match=message):
            tagger.fit(X * 4, y * 4)
    with pytest.raises(ValueError, match=message):
        CRFTagger(decode=decode).partial_fit(X, y, classes=["a", "b"])
    tagger = CRFTagger().fit(X, y).set_params(decode=decode)
    for ask in (tagger.predict, tagger.predict_spans, lambda X: tagger.score(X, y)):
        for source in (X, [RowBlocks(X[0])]):
            if ask != tagger.predict_spans or source is X:
                with pytest.raises(ValueError, match=message):
                    ask(source)
    assert len(tagger.predict_proba([RowBlocks(X[0])])) == 1
    words = CRFTagger().fit([[["a"], ["b"]]], [["A", "B"]])
    with pytest.raises(ValueError, match=message):
        describe(words.set_params(decode=decode))


def test_valid_paths_need_paths():
    tagger, X = model(0), [rows(5)]
    for ask in (tagger.predict, tagger.predict_spans):
        for valid in ("once", lambda labels: True):
            with pytest.raises(ValueError, match=r"^valid needs decode='path': "):
                ask(X, valid=valid)
    with pytest.raises(ValueError, match="known needs sequences in memory"):
        tagger.predict([RowBlocks(X[0])], known=[[None] * 5])
    with pytest.raises(ValueError, match="decode"):
        HMSVMTagger().set_params(decode="marginal")
