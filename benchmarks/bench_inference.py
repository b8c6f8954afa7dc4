"""Inference over chains beside the kernels of hmmlearn, pytorch-crf and torch-struct, and against
the size of the problem.

Parts (all, or those named): kernels, sizes. Peers that are not installed are left out. The answers
of all have to agree before a time is told.
"""

import warnings
from statistics import median

import numpy as np
from _common import seconds
from _report import parts_of, run, table
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from sklseq import CRFTagger, Sequences
from sklseq.inference import forward_backward, viterbi


class Problem:
    """Scores of ``n`` sequences of ``T`` rows."""

    def __init__(self, n, T, L, seed=0):
        rng = np.random.default_rng(seed)
        self.emission = rng.normal(size=(n * T, L))
        self.transition = rng.normal(size=(L, L))
        self.offsets = np.arange(0, n * T + 1, T)
        self.shape = (n, T, L)

    def chains(self):
        return self.emission.reshape(self.shape)


# --- What answers: each returns the log partition functions, or the scores of the best paths ------


def our_marginals(p):
    return forward_backward(p.emission, p.transition, p.offsets).log_z


def our_viterbi(p):
    return viterbi(p.emission, p.transition, p.offsets)[1]


def hmmlearn_marginals(p):
    """Scaled forward and backward passes and ξ, on factors whose largest of a row is 1."""
    from hmmlearn import _hmmc

    A, found = np.exp(p.transition), []
    start = np.ones(p.shape[2])
    for scores in p.chains():
        top = scores.max(axis=1)
        psi = np.exp(scores - top[:, None])
        log_z, forward, scaling = _hmmc.forward_scaling(start, A, psi)
        backward = _hmmc.backward_scaling(start, A, psi, scaling)
        _hmmc.compute_scaling_xi_sum(forward, A, backward, psi)
        posteriors = forward * backward
        posteriors /= posteriors.sum(axis=1, keepdims=True)
        found.append(log_z + top.sum())
    return np.array(found)


def hmmlearn_viterbi(p):
    from hmmlearn import _hmmc

    A, start = np.exp(p.transition), np.ones(p.shape[2])
    return np.array([_hmmc.viterbi(start, A, one)[0] for one in p.chains()])


def torch_crf(p):
    import torch
    from torchcrf import CRF

    model = CRF(p.shape[2], batch_first=True).double()
    with torch.no_grad():
        for name in ("start_transitions", "end_transitions"):
            getattr(model, name).zero_()
        model.transitions.copy_(torch.from_numpy(p.transition))
    return model, torch.from_numpy(p.chains()).requires_grad_()


def torchcrf_gradient(p):
    """Its likelihood of an arbitrary labeling with the gradient, from which it has log Z."""
    import torch

    model, scores = torch_crf(p)
    y = torch.zeros(p.shape[:2], dtype=torch.long)
    log_p = model(scores, y, reduction="none")
    log_p.sum().backward()
    own = p.chains()[:, :, 0].sum(axis=1) + (p.shape[1] - 1) * p.transition[0, 0]
    return own - log_p.detach().numpy()


def torchcrf_viterbi(p):
    model, scores = torch_crf(p)
    paths = np.array(model.decode(scores.detach()))
    own = np.take_along_axis(p.chains(), paths[:, :, None], axis=2).sum(axis=(1, 2))
    return own + p.transition[paths[:, :-1], paths[:, 1:]].sum(axis=1)


def torch_struct(p):
    import torch
    from torch_struct import LinearChainCRF

    n, T, _ = p.shape
    edges = np.repeat(p.transition.T[None, None], n, axis=0)  # [z_t, z_{t-1}]
    edges = np.repeat(edges, T - 1, axis=1) + p.chains()[:, 1:, :, None]
    edges[:, 0] += p.chains()[:, :1]
    scores = torch.from_numpy(edges).requires_grad_()
    return LinearChainCRF(scores, lengths=torch.full((n,), T))


def torchstruct_gradient(p):
    chain = torch_struct(p)
    chain.marginals  # noqa: B018  a property that computes
    return chain.partition.detach().numpy()


def torchstruct_viterbi(p):
    return torch_struct(p).max.detach().numpy()


QUESTIONS = {
    "log Z and all marginals": {
        "sklseq": our_marginals,
        "hmmlearn": hmmlearn_marginals,
        "pytorch-crf, with gradient": torchcrf_gradient,
        "torch-struct, with gradient": torchstruct_gradient,
    },
    "best path": {
        "sklseq": our_viterbi,
        "hmmlearn": hmmlearn_viterbi,
        "pytorch-crf": torchcrf_viterbi,
        "torch-struct": torchstruct_viterbi,
    },
}


def one_thread_of_torch():
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")  # of its own making


def part_kernels(quick):
    """Sequences of 25 rows with random scores, one thread, peers by turns."""
    row = table("kernels", "question", "labels", "who", "thousand tokens/s", "sklseq is")
    one_thread_of_torch()
    for L, n in ((5, 400), (22, 100), (100, 80)):
        p = Problem(4 if quick else n, 25, L)
        for question, answers in QUESTIONS.items():
            expected, installed = answers["sklseq"](p), {}
            for who, answer in answers.items():
                if L == 100 and who.startswith("torch-struct"):
                    continue  # some tokens a second
                try:
                    np.testing.assert_allclose(answer(p), expected, rtol=1e-9)
                except ImportError:
                    continue
                installed[who] = answer
            turns = [[seconds(answer, p) for answer in installed.values()] for _ in range(5)]
            for who, column in zip(installed, np.transpose(turns)):
                speed = len(p.emission) / median(column) / 1e3
                row(
                    question,
                    L,
                    who,
                    speed,
                    f"{median(column) / median(np.transpose(turns)[0]):.1f} ×",
                )


def generated(n, T, L, M, seed=0):
    """Sequences of ``M`` active binary features a row whose labels depend on them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, L, size=n * T)
    width = 200 * M
    columns = (y[:, None] * 7 + rng.integers(0, 100, size=(n * T, M))) % 200 + 200 * np.arange(M)
    rows = sparse.csr_matrix(
        (np.ones(columns.size), columns.ravel(), np.arange(0, columns.size + 1, M)), (n * T, width)
    )
    X = Sequences(rows, np.arange(0, n * T + 1, T))
    return X, np.split(y.astype(str), X.offsets[1:-1])


SIZES = {
    "n, sequences": [(250, 25, 10, 10), (1000, 25, 10, 10), (4000, 25, 10, 10)],
    "T, rows of each": [(4000, 5, 10, 10), (800, 25, 10, 10), (20, 1000, 10, 10)],
    "L, labels": [(400, 25, 2, 10), (400, 25, 10, 10), (400, 25, 50, 10), (400, 25, 200, 10)],
    "M, features a row": [(800, 25, 10, 1), (800, 25, 10, 10), (800, 25, 10, 100)],
}


def part_sizes(quick):
    """Five passes of the default solver, and answers, against sequences n, rows T, labels L and
    features a row M; one thread."""
    row = table("sizes", "against", "n", "T", "L", "M", "fit, µs a row and pass",
                "predict, µs a row", "predict_proba, µs a row")  # fmt: skip
    for against, sizes in SIZES.items():
        for n, T, L, M in sizes[:2] if quick else sizes:
            X, y = generated(n, T, L, M)
            tagger = CRFTagger(l2=1, solver="dual", max_iter=5, tol=0.0)
            times = [
                (
                    seconds(tagger.fit, X, y) / 5,
                    seconds(tagger.predict, X),
                    seconds(tagger.predict_proba, X),
                )
                for _ in range(1 if quick else 5)
            ]
            row(against, n, T, L, M, *(1e6 * np.median(times, axis=0) / X.n_rows))


if __name__ == "__main__":
    warnings.simplefilter("ignore", ConvergenceWarning)  # fits are cut short on purpose
    run(__doc__, parts_of(globals()))
