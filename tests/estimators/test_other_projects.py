"""What the suites of hmmlearn, seqeval, sklearn-crfsuite, python-crfsuite and pytorch-crf expect.

Facts, each the name of a test, asked in the way the manual's page on other tools translates them.
"""

import itertools
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp, softmax
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

from sklseq import CRFTagger, HMSVMTagger, read_crfsuite_model
from sklseq.data.labels import as_label_sequences
from sklseq.data.strict_spans import find_strict_spans
from sklseq.features import DictFeatures
from sklseq.inference import forward_backward, nbest, sample, viterbi
from sklseq.metrics import (
    sequence_accuracy,
    span_precision_recall_fscore_support,
    span_report,
    token_accuracy,
)
from tests.oracles import all_paths
from tests.reference import backward, forward, score_path

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


# "Forward-backward algorithm", Wikipedia: rain, and a director who carries an umbrella.
UMBRELLA = np.log([[0.9, 0.2], [0.9, 0.2], [0.1, 0.8], [0.9, 0.2], [0.9, 0.2]])
WORLD = {"transition": np.log([[0.7, 0.3], [0.3, 0.7]]), "start": np.log([0.5, 0.5])}
# "Hidden Markov model", Wikipedia: rainy or sunny, seen from a walk, shopping, cleaning.
ACTIVITY = np.log([[0.1, 0.4, 0.5], [0.6, 0.3, 0.1]]).T
FRIEND = {"transition": np.log([[0.7, 0.3], [0.4, 0.6]]), "start": np.log([0.6, 0.4])}


class TestHmmlearn:
    """A hidden Markov model is a chain with log probabilities as potentials."""

    def test_umbrella_world_has_log_likelihood_minus_3_3725_and_these_posteriors(self):
        found = forward_backward(UMBRELLA, **WORLD)
        assert round(found.log_z[0], 4) == -3.3725
        expected = [0.8673, 0.8204, 0.3075, 0.8204, 0.8673]
        assert_allclose(found.marginals[:, 0], expected, atol=5e-5)
        assert_allclose(found.marginals.sum(axis=1), 1)

    def test_umbrella_world_has_these_forward_and_backward_values(self):
        psi = UMBRELLA.copy()
        psi[0] += WORLD["start"]
        alpha = np.exp(forward(psi, WORLD["transition"]))
        beta = np.exp(backward(psi, WORLD["transition"]))
        assert_allclose(alpha[:, 0], [0.4500, 0.3105, 0.0230, 0.0408, 0.0298], atol=5e-5)
        assert_allclose(alpha[:, 1], [0.1000, 0.0410, 0.0975, 0.0150, 0.0046], atol=5e-5)
        assert_allclose(beta[:, 0], [0.0661, 0.0906, 0.4593, 0.6900, 1], atol=5e-5)
        assert_allclose(beta[:, 1], [0.0455, 0.1503, 0.2437, 0.4100, 1], atol=5e-5)

    def test_umbrella_world_has_best_path_00100_of_minus_4_4590(self):
        labels, scores = viterbi(UMBRELLA, **WORLD)
        assert labels.tolist() == [0, 0, 1, 0, 0]
        assert round(scores[0], 4) == -4.4590

    def test_walk_shop_clean_is_sunny_rainy_rainy_with_probability_0_01344(self):
        labels, scores = viterbi(ACTIVITY, **FRIEND)
        assert labels.tolist() == [1, 0, 0]
        assert round(np.exp(scores[0]), 5) == 0.01344

    def test_walk_shop_clean_has_these_posteriors_and_their_best_labels_agree(self):
        marginals = forward_backward(ACTIVITY, **FRIEND).marginals
        # Exact to 8 digits; the ones in their suite differ in the seventh.
        assert_allclose(marginals[:, 0], [0.23170296, 0.62406283, 0.86397715], atol=5e-9)
        assert marginals.argmax(axis=1).tolist() == [1, 0, 0]

    def test_uniform_transitions_leave_the_posteriors_of_single_rows(self):
        emission = np.log(np.random.default_rng(0).random((10, 8)))
        flat = np.full((8, 8), -np.log(8))
        found = forward_backward(emission, flat, start=flat[0])
        assert_allclose(found.marginals, softmax(emission, axis=1), rtol=1e-10)
        assert viterbi(emission, flat)[0].tolist() == emission.argmax(axis=1).tolist()

    def test_an_outlier_of_ten_thousand_standard_deviations_does_not_underflow(self):
        rng = np.random.default_rng(0)
        x = np.concatenate([rng.normal(mean, 1, 100) for mean in (0, 5, 0, 5)])
        x[40] = 10_000
        emission = -0.5 * (x[:, None] - [0, 5]) ** 2
        found = forward_backward(emission, np.log([[0.4, 0.6], [0.6, 0.4]]), start=[-np.inf, 0])
        assert np.isfinite(found.log_z).all()
        assert_allclose(found.marginals.sum(axis=1), 1)
        assert_allclose(found.marginals[0], [0, 1], atol=1e-12)

    def test_left_to_right_states_never_go_back(self):
        step = np.full((3, 3), -np.inf)
        step[[0, 0, 1, 1, 2], [0, 1, 1, 2, 2]] = np.log([0.5, 0.5, 0.5, 0.5, 1])
        rng, offsets = np.random.default_rng(0), np.array([0, 10, 18, 19])
        emission, start = rng.normal(size=(19, 3)), [0, -np.inf, -np.inf]
        found = forward_backward(emission, step, offsets, start=start)
        assert np.isfinite(found.log_z).all()
        assert_allclose(found.marginals.sum(axis=1), 1)
        assert_allclose(found.marginals[offsets[:-1], 0], 1)
        labels, _ = viterbi(emission, step, offsets, start=start)
        drawn = sample(emission, step, offsets, start=start, n_samples=50, random_state=0)
        for path in (labels, *np.reshape(drawn, (-1, 19))):
            for a, b in itertools.pairwise(offsets):
                assert path[a] == 0
                assert set(np.diff(path[a:b]).tolist()) <= {0, 1}

    def test_sequences_of_lengths_3_4_5_and_of_one_row_train(self):
        rng = np.random.default_rng(0)
        X = [rng.random((n, 3)) for n in (3, 4, 5, 1)]
        y = [[t % 3 for t in range(len(x))] for x in X]
        proba = CRFTagger().fit(X, y).predict_proba(X)
        assert [p.shape for p in proba] == [(3, 3), (4, 3), (5, 3), (1, 3)]

    def test_rows_around_means_far_apart_get_the_state_that_made_them(self):
        rng, states = np.random.default_rng(10), np.repeat(np.arange(3), 5)
        means = 20 * rng.integers(-20, 20, size=(3, 3))
        X = [means[states] + rng.normal(size=(15, 3)) for _ in range(4)]
        tagger = CRFTagger(l2=1e-6).fit(X, [states] * 4)
        assert tagger.score(X, [states] * 4) == 1

    def test_of_the_dishonest_casino_the_odds_of_dice_and_changes_are_found(self):
        """With labels, and nothing to penalise, scores are differences of log probabilities."""
        rng, state, states = np.random.default_rng(99), 0, []
        for u in rng.random(20_000):
            states.append(state)
            state = int(u < 0.05) if state == 0 else int(u < 0.9)
        states = np.array(states)
        loaded = rng.choice(6, size=20_000, p=[0.1] * 5 + [0.5])
        rolls = np.where(states == 1, loaded, rng.integers(0, 6, size=20_000))
        X = np.eye(6)[rolls].reshape(200, 100, 6)
        tagger = CRFTagger(l2=1e-4, all_possible_states=True).fit(
            list(X), list(states.reshape(200, 100))
        )
        w, change = tagger.coef_, tagger.transition_
        sixes = (w[5, 1] - w[5, 0]) - np.mean(w[:5, 1] - w[:5, 0])
        assert_allclose(sixes, np.log((1 / 2) / (1 / 10)), atol=0.15)
        stays = change[0, 0] + change[1, 1] - change[0, 1] - change[1, 0]
        assert_allclose(stays, np.log(0.95 * 0.9 / (0.05 * 0.1)), atol=0.2)


# Spans of one label and of two labels, types x and y; and what has none.
STRICT = {
    "iob1": (
        {"Ix": "0-1", "O Ix": "1-2", "Ix O": "0-1", "Ix Ix": "0-2", "Ix Iy": "0-1 1-2",
         "Ix Bx": "0-1 1-2", "Ix By": "0-1", "Bx Ix": "1-2", "Bx Iy": "1-2", "Bx Bx": "1-2"},
        ["", "O", "Bx", "O Bx", "Bx O", "Bx By"],
    ),
    "iob2": (
        {"Bx": "0-1", "O Bx": "1-2", "Ix Bx": "1-2", "Ix By": "1-2", "Bx O": "0-1",
         "Bx Ix": "0-2", "Bx Iy": "0-1", "Bx Bx": "0-1 1-2", "Bx By": "0-1 1-2"},
        ["", "O", "Ix", "O Ix", "Ix O", "Ix Ix", "Ix Iy"],
    ),
    # "Ex Ix" and "Ex Ex" have a span more than in seqeval, whose source says that it reads
    # IOE1 in part; "Ix Ex" is as its suite wants it and does not get it.
    "ioe1": (
        {"Ix": "0-1", "O Ix": "1-2", "Ix O": "0-1", "Ix Ix": "0-2", "Ix Iy": "0-1 1-2",
         "Ix Ex": "0-1", "Ix Ey": "0-1", "Ex Ix": "0-1 1-2", "Ex Iy": "1-2", "Ex Ex": "0-1"},
        ["", "O", "Ex", "O Ex", "Ex O", "Ex Ey"],
    ),
    "ioe2": (
        {"Ex": "0-1", "O Ex": "1-2", "Ix Ex": "0-2", "Ix Ey": "1-2", "Ex O": "0-1",
         "Ex Ix": "0-1", "Ex Iy": "0-1", "Ex Ex": "0-1 1-2", "Ex Ey": "0-1 1-2"},
        ["", "O", "Ix", "O Ix", "Ix O", "Ix Ix", "Ix Iy"],
    ),
    "iobes": (
        {"Sx": "0-1", "O Sx": "1-2", "Ix Sx": "1-2", "Bx Ex": "0-2", "Bx Sx": "1-2",
         "Ex Sx": "1-2", "Sx O": "0-1", "Sx Ix": "0-1", "Sx Bx": "0-1", "Sx Ex": "0-1",
         "Sx Sx": "0-1 1-2"},
        ["O", "Ix", "Bx", "Ex", "O O", "O Ix", "O Bx", "O Ex", "Ix O", "Ix Ix", "Ix Iy",
         "Ix Bx", "Ix Ex", "Ix Ey", "Bx O", "Bx Ix", "Bx Iy", "Bx Bx", "Bx Ey", "Ex O", "Ex Ix",
         "Ex Bx", "Ex Ex"],
    ),
}  # fmt: skip


class TestSeqeval:
    """Reading of labels in strict mode, scores and report."""

    @pytest.mark.parametrize(
        "types", [{"x": "-PER", "y": "-ORG"}, {"x": ""}], ids=["types", "bare"]
    )
    @pytest.mark.parametrize("scheme", [*STRICT, "bilou"])
    def test_strict_spans_of_one_and_two_labels(self, scheme, types):
        some, none = STRICT.get(scheme, STRICT["iobes"])
        for row, spans in {**some, **dict.fromkeys(none, "")}.items():
            if "y" in row and "y" not in types:
                continue
            if scheme == "bilou":
                row = row.replace("E", "L").replace("S", "U")
            labels = [label[0] + types.get(label[1:], "") for label in row.split()]
            found = find_strict_spans(*as_label_sequences([labels]), scheme)
            assert " ".join(f"{a}-{b}" for a, b in zip(found.start, found.stop)) == spans, row

    @pytest.mark.parametrize(
        ("scheme", "wrong"),
        [("iob1", "ES"), ("iob2", "EST"), ("ioe1", "BS"), ("ioe2", "BS"), ("iobes", "LU")],
    )
    def test_prefixes_of_other_schemes_are_refused(self, scheme, wrong):
        for letter in wrong:
            with pytest.raises(ValueError, match="is not a span label"):
                find_strict_spans(*as_label_sequences([["O", letter]]), scheme)

    def test_types_may_contain_hyphens_and_any_letters(self):
        y = [["B-ORG-COMPANY", "I-ORG-COMPANY", "B-組織"]]
        assert list(span_report(y, y, output_dict=True))[:2] == ["ORG-COMPANY", "組織"]

    # Types A (two true spans, one found), B (found) and C (predicted only).
    y_true, y_pred = [["B-A", "B-B", "O", "B-A"]], [["O", "B-B", "B-C", "B-A"]]

    @pytest.mark.parametrize("mode", [{}, {"mode": "strict", "scheme": "iob2"}])
    @pytest.mark.parametrize(
        ("average", "expected"),
        [
            (None, [[1, 1, 0], [1 / 2, 1, 0], [2 / 3, 1, 0], [2, 1, 0]]),
            ("micro", [2 / 3, 2 / 3, 2 / 3, 3]),
            ("macro", [2 / 3, 1 / 2, 5 / 9, 3]),
            ("weighted", [1, 2 / 3, 7 / 9, 3]),
        ],
    )
    def test_averages_over_a_type_that_is_only_predicted(self, average, expected, mode):
        got = span_precision_recall_fscore_support(
            self.y_true, self.y_pred, average=average, **mode
        )
        for value, reference in zip(got, expected, strict=True):
            assert_allclose(value, reference, rtol=1e-12)

    def test_report_has_the_lines_of_seqeval(self):
        """All but the weighted average; ours adds the accuracy of tokens."""
        lines = [line.split() for line in span_report(self.y_true, self.y_pred).splitlines()]
        for line in (
            "A 1.00 0.50 0.67 2",
            "B 1.00 1.00 1.00 1",
            "C 0.00 0.00 0.00 0",
            "micro avg 0.67 0.67 0.67 3",
            "macro avg 0.67 0.50 0.56 3",
        ):
            assert line.split() in lines

    def test_a_span_that_begins_a_row_early_is_wrong(self):
        y_true = [["O", "O", "O", "B-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
        y_pred = [["O", "O", "B-MISC", "I-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
        for average in ("micro", "macro", "weighted"):
            got = span_precision_recall_fscore_support(y_true, y_pred, average=average)
            assert got == (0.5, 0.5, 0.5, 2)
        assert token_accuracy(y_true, y_pred) == 0.8


# Ten days, what was done on each and how much; the eighth day tells nothing.
DAYS = [
    {"walk": 1, "shop": 0.5}, {"walk": 1}, {"walk": 1, "clean": 0.5}, {"shop": 0.5, "clean": 0.5},
    {"walk": 0.5, "clean": 1}, {"clean": 1, "shop": 0.1}, {"walk": 1, "shop": 0.5}, {},
    {"clean": 1}, {"солнце": "не светит".encode(), "clean": 1},
]  # fmt: skip
WEATHER = ["sunny"] * 3 + ["rainy"] * 3 + ["sunny"] * 2 + ["rainy"] * 2


class TestPythonCrfsuite:
    """A trainer and a tagger on days of activities."""

    @pytest.fixture
    def tagger(self):
        return CRFTagger(boundaries=False).fit([DAYS], [WEATHER])

    def test_labels_and_attributes_are_those_of_training(self, tagger):
        assert tagger.classes_.tolist() == ["rainy", "sunny"]
        names = {name for _, _, name in tagger.top_features(100)}
        assert names == {"walk", "shop", "clean", "солнце:не светит"}

    def test_the_training_sequence_is_labelled_as_it_was(self, tagger):
        assert tagger.predict([DAYS])[0] == WEATHER

    def test_true_and_false_are_the_weights_one_and_zero(self, tagger):
        bools = [{k: bool(v) if v in (0, 1) else v for k, v in day.items()} for day in DAYS]
        assert tagger.predict([bools])[0] == WEATHER
        assert_array_equal(tagger.predict_proba([bools])[0], tagger.predict_proba([DAYS])[0])

    def test_without_their_weights_days_get_other_labels(self, tagger):
        assert tagger.predict([[list(day) for day in DAYS]])[0] != WEATHER

    def test_attributes_without_weights_are_dicts_of_ones(self):
        ones = [dict.fromkeys(day, 1) for day in DAYS]
        tagger = CRFTagger(l2=1e-6, boundaries=False).fit([ones], [WEATHER])
        for data in (ones, [list(day) for day in DAYS], [set(day) for day in DAYS]):
            assert tagger.predict([data])[0] == WEATHER

    def test_the_best_labels_are_more_probable_than_one_label_for_all(self, tagger):
        best = tagger.predict([DAYS])[0]
        log_p = tagger.predict_log_proba_sequence([DAYS] * 2, [best, ["sunny"] * len(best)])
        assert log_p[1] < log_p[0] < 0

    def test_weather_stays_and_people_walk_in_the_sun(self, tagger):
        rainy, sunny = 0, 1
        assert tagger.transition_[sunny, sunny] > tagger.transition_[sunny, rainy]
        weight = {(name, str(label)): w for w, label, name in tagger.top_features(100)}
        assert weight["walk", "sunny"] > weight.get(("walk", "rainy"), 0)

    def test_nested_attributes_have_joined_names_and_the_sign_of_their_label(self):
        nested = [
            {"foo": {"bar": "baz", "spam": 0.5, "egg": ["x", "y"], "ham": {"x": -0.5, "y": -0.1}}},
            {"foo": {"bar": "ham", "spam": -0.5, "ham": {"x", "y"}}},
        ]
        features = DictFeatures()
        assert features.inverse_transform(features.fit_transform([nested]))[0] == [
            {"foo:bar:baz": 1, "foo:spam": 0.5, "foo:egg:x": 1, "foo:egg:y": 1,
             "foo:ham:x": -0.5, "foo:ham:y": -0.1},
            {"foo:bar:ham": 1, "foo:spam": -0.5, "foo:ham:x": 1, "foo:ham:y": 1},
        ]  # fmt: skip
        tagger = CRFTagger(all_possible_states=True).fit([nested], [["first", "second"]])
        weight = {(name, str(label)): w for w, label, name in tagger.top_features(100)}
        for name in ("foo:bar:baz", "foo:spam", "foo:egg:x", "foo:egg:y"):
            assert weight[name, "first"] > 0 >= weight[name, "second"]
        for name in ("foo:bar:ham", "foo:ham:x", "foo:ham:y"):
            assert weight[name, "second"] > 0 >= weight[name, "first"]

    def test_texts_and_numbers_mix_under_one_key(self):
        days = [{"foo": "bar"}, {"baz": False}, {"foo": "bar", "baz": True}, {"baz": 0.2}]
        tagger = CRFTagger().fit([days], [["spam", "egg", "spam", "spam"]])
        weight = {(name, str(label)): w for w, label, name in tagger.top_features(100)}
        assert {name for name, _ in weight} == {"foo:bar", "baz"}
        assert weight["foo:bar", "spam"] > 0

    @pytest.mark.parametrize("data", [b"foo", b"lCRFfoo", b"lCRFfoo" * 100, b"# no model\n" * 100])
    def test_files_that_are_no_model_are_refused(self, data, tmp_path):
        (tmp_path / "model").write_bytes(data)
        with pytest.raises(ValueError, match="model"):
            read_crfsuite_model(tmp_path / "model")

    def test_a_model_that_does_not_exist_is_the_usual_error(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            read_crfsuite_model(tmp_path / "none")

    @pytest.mark.parametrize("X", ["foo", ["foo"], [["foo"]], [[[{"foo": 1.0}]]]])
    def test_what_is_no_sequence_of_items_is_refused(self, tagger, X):
        with pytest.raises((TypeError, ValueError)):
            tagger.predict(X)

    @pytest.mark.parametrize("options", [{"solver": "foo"}, {"l2": -1}])
    def test_unknown_algorithms_and_parameters_are_refused(self, options):
        with pytest.raises(ValueError, match=next(iter(options))):
            CRFTagger(**options).fit([DAYS], [WEATHER])

    def test_no_sequence_is_an_error_and_no_crash(self):
        with pytest.raises(ValueError):
            CRFTagger().fit([], [])


ALGORITHMS = {
    "lbfgs": CRFTagger(solver="lbfgs"),
    "lbfgs with c1": CRFTagger(l1=0.01, l2=0.01, solver="owlqn"),
    "l2sgd": CRFTagger(solver="adagrad", random_state=0),
    "ap": HMSVMTagger(solver="perceptron", random_state=0),
    "pa": HMSVMTagger(random_state=0),
}


class TestSklearnCrfsuite:
    """An estimator; its algorithms are solvers here."""

    @pytest.fixture(params=ALGORITHMS)
    def model(self, request):
        return pickle.loads(pickle.dumps(ALGORITHMS[request.param]))

    def test_every_algorithm_labels_what_it_learnt_and_so_does_its_pickle(self, model):
        model.fit([DAYS], [WEATHER])
        copy = pickle.loads(pickle.dumps(model))
        assert copy.get_params() == model.get_params()
        for fitted in (model, copy):
            assert fitted.predict([DAYS])[0] == WEATHER
            assert fitted.score([DAYS], [WEATHER]) == 1

    def test_prediction_before_fit_is_an_error(self, model):
        with pytest.raises(NotFittedError):
            model.predict([DAYS])

    @pytest.mark.parametrize("name", ["lbfgs", "lbfgs with c1", "l2sgd"])
    def test_marginals_have_a_row_a_day_and_a_column_a_label(self, name):
        model = pickle.loads(pickle.dumps(ALGORITHMS[name])).fit([DAYS], [WEATHER])
        (proba,) = model.predict_proba([DAYS])
        assert proba.shape == (len(DAYS), len(model.classes_))
        assert_allclose(proba.sum(axis=1), 1, atol=1e-6)

    def test_cross_validation_over_twenty_sequences_has_the_score_one(self):
        scores = cross_val_score(CRFTagger(), [DAYS] * 20, [WEATHER] * 20, cv=5)
        assert scores.mean() == 1

    @pytest.mark.parametrize("y", [[WEATHER] * 2, [WEATHER[1:]]])
    def test_labels_that_do_not_match_the_sequences_are_refused(self, y):
        with pytest.raises(ValueError):
            CRFTagger().fit([DAYS], y)

    def test_flat_accuracy_of_three_fifths(self):
        assert token_accuracy([["x", "z", "y"], ["x", "x"]], [["y", "z", "y"], ["x", "y"]]) == 3 / 5

    def test_flat_scores_of_sequences_of_equal_length_with_two_labels(self):
        y = [["x", "y"], ["x", "y"]]  # binary indicators to scikit-learn
        assert token_accuracy(y, y) == sequence_accuracy(y, y) == 1

    def test_sequence_accuracy_counts_whole_sequences(self):
        y1, y2 = [["x", "z", "y"], ["x", "x"]], [["y", "z", "y"], ["x", "y"]]
        assert sequence_accuracy(y1, y2) == 0
        assert sequence_accuracy([[1, 2], [3], [4]], [[1, 2], [4], [4]]) == 2 / 3
        assert sequence_accuracy([[1, 2], [3]], [[1, 2], [3]]) == 1

    def test_accuracy_over_nothing_is_an_error_here_and_zero_there(self):
        with pytest.raises(ValueError, match="Accuracy over no sequences is undefined"):
            sequence_accuracy([], [])


class TestPytorchCrf:
    """Any scores: emissions of a network, transitions, first and last labels."""

    @pytest.fixture(params=[(3, 3), (3, 2), (1, 3)], ids=["full", "masked", "one row"])
    def batch(self, request):
        """Two sequences of at most three rows, five labels; a mask is a shorter sequence."""
        rng, lengths = np.random.default_rng(1478754), request.param
        chain = {
            name: rng.uniform(-5, 5, size)
            for name, size in {"transition": (5, 5), "start": 5, "end": 5}.items()
        }
        emission = rng.normal(size=(sum(lengths), 5))
        return emission, chain, np.array([0, lengths[0], sum(lengths)])

    def paths(self, emission, chain):
        paths = all_paths(len(emission), 5)
        return paths, score_path(paths, emission, **chain)

    def test_the_likelihood_of_each_sequence_is_its_score_over_that_of_all_paths(self, batch):
        emission, chain, offsets = batch
        log_z = forward_backward(emission, offsets=offsets, **chain).log_z
        assert log_z.shape == (2,)
        for total, (a, b) in zip(log_z, itertools.pairwise(offsets)):
            _, scores = self.paths(emission[a:b], chain)
            assert_allclose(total, logsumexp(scores), rtol=1e-12)

    def test_decoding_gives_the_best_of_all_paths_and_no_labels_behind_the_mask(self, batch):
        emission, chain, offsets = batch
        labels, best = viterbi(emission, offsets=offsets, **chain)
        assert len(labels) == offsets[-1]
        for score, (a, b) in zip(best, itertools.pairwise(offsets)):
            paths, scores = self.paths(emission[a:b], chain)
            assert labels[a:b].tolist() == paths[scores.argmax()].tolist()
            assert_allclose(score, scores.max(), rtol=1e-12)

    def test_a_batch_gives_what_its_sequences_give_alone(self, batch):
        emission, chain, offsets = batch
        together = viterbi(emission, offsets=offsets, **chain)[0]
        alone = [viterbi(emission[a:b], **chain)[0] for a, b in itertools.pairwise(offsets)]
        assert together.tolist() == np.concatenate(alone).tolist()

    def test_the_second_best_path_is_that_of_the_enumeration(self, batch):
        emission, chain, offsets = batch
        (first, *_), *_ = found = nbest(emission, offsets=offsets, n=2, **chain)
        paths, scores = self.paths(emission[: offsets[1]], chain)
        assert np.asarray(first).tolist() == paths[np.argsort(-scores)[:2]].tolist(), found

    def test_no_labels_and_wrong_shapes_are_refused(self):
        emission, transition = np.zeros((2, 3)), np.zeros((3, 3))
        for arguments in (
            (np.zeros((2, 0)), np.zeros((0, 0))),
            (np.zeros(6), transition),
            (np.zeros((1, 2, 3)), transition),
            (emission, np.zeros((10, 10))),
            (emission, transition, [0, 3]),
            (emission, transition, [1, 2]),
        ):
            with pytest.raises(ValueError):
                viterbi(*arguments)
