"""The warning of training that does not converge names the column to scale, if there is one."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from sklseq import CRFTagger, HMSVMTagger


@pytest.mark.filterwarnings("ignore:Of .* columns of X")  # of the offset
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(
    ("change", "advice"),
    [
        (lambda x: x, r"raise max_iter, tol or l2\.$"),
        (
            lambda x: 1e4 * x,
            r"scale the features, e\.g\. by .*StandardScaler.*: column \d of X holds",
        ),
        (lambda x: x + [0, 0, 1e3, 0], r"scale the features, .*: column 2 of X holds 1e\+03"),
        ("outlier", r"column 1 of X holds -300, \d\d times its root mean square.*QuantileTransf"),
    ],
)
def test_warnings_of_training_name_the_column_to_scale(form, change, advice):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(100, 4)) for _ in range(20)]
    y = [(x @ [1, -1, 2, 0] + rng.normal(size=100) > 0).astype(int) for x in X]
    if change == "outlier":
        X[7][3, 1] = -300
    else:
        X = [change(x) for x in X]
    with pytest.warns(ConvergenceWarning, match=advice):
        CRFTagger(max_iter=1, tol=1e-9).fit([form(x) for x in X], y)


@pytest.mark.parametrize(("solver", "other"), [("bcfw", "smoothing"), ("smoothing", "bcfw")])
def test_margin_models_name_scaling_only_where_values_are_large(solver, other):
    rng = np.random.default_rng(0)
    y = [rng.integers(3, size=20) for _ in range(10)]
    tagger = HMSVMTagger(solver=solver, max_iter=1, tol=1e-6, random_state=0)
    for unit in (1.0, 100.0):
        X = [unit * rng.normal(size=(20, 2)) for _ in y]
        with pytest.warns(ConvergenceWarning, match=f"or take solver='{other}'") as told:
            tagger.fit(X, y)
        assert ("StandardScaler" in str(told[-1].message)) == (unit > 1)
