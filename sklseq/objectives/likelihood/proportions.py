"""Likelihood with a penalty on label proportions of unlabelled rows (expectation constraints)."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse
from scipy.special import rel_entr

from sklseq._lib.threads import Threads
from sklseq.data.partial_labels import AllowedLabels
from sklseq.data.sequences import Sequences
from sklseq.inference.chain.linear_chain import Transitions
from sklseq.inference.chain.row_transitions import RowTransitions
from sklseq.inference.chain.tangent import Direction
from sklseq.objectives.likelihood.likelihood import Block, ThreadBuffers
from sklseq.objectives.likelihood.partial import (
    PartialLogLikelihood,
    add_covariances,
    in_float64,
)
from sklseq.objectives.scores.score_map import ScoreMap

# Lower limit of an expected proportion in divisions: it underflows to 0 if scores differ widely.
LEAST = 1e-100


class Proportions(NamedTuple):
    """Label proportions in groups of rows; labels without one have the rest in total.

    Attributes
    ----------
    members : CSR matrix of shape (n_rows, n_groups)
        1 where a row is in a group.
    places : intp ndarray of shape (n_groups, n_labels)
        Position of each label in ``target``; labels that share the rest have the same one.
    target : ndarray of shape (n_groups, n_labels + 1)
        Each row sums to 1.
    names : list of str
        Which rows each group has, for messages.
    """

    members: sparse.csr_matrix
    places: np.ndarray
    target: np.ndarray
    names: list[str]

    @classmethod
    def read(cls, given: Mapping[Any, Any], X: Sequences, classes, vectorizer) -> Self:
        """Read and check the parameter ``label_proportions`` of ``CRFTagger``."""
        of_rows = {label: p for label, p in given.items() if not isinstance(p, Mapping)}
        of_columns = {column: p for column, p in given.items() if isinstance(p, Mapping)}
        parts = [sparse.csr_matrix(np.ones((X.n_rows, 1)))] * bool(of_rows)
        if of_columns:
            values = X.rows[:, find_columns(list(of_columns), X, vectorizer)]
            parts.append(sparse.csr_matrix(values != 0, dtype=np.float64))
        labels = classes.tolist()
        groups = [of_rows] * bool(of_rows) + list(of_columns.values())
        places, target = zip(*(_one_group(group, labels) for group in groups))
        names = [""] * bool(of_rows) + [
            f" where column {column!r} is not 0" for column in of_columns
        ]
        return cls(sparse.hstack(parts, format="csr"), np.array(places), np.array(target), names)

    def check_possible(
        self, possible: np.ndarray, unknown: np.ndarray, classes: np.ndarray
    ) -> None:
        """Raise if labels with a positive proportion in a group are possible at none of its rows.

        ``possible``: whether the constraints allow each label at each row; ``unknown``: mask of the
        rows of unknown label. KL(p̃ ‖ q) is infinite then, for any weights.
        """
        members = sparse.csr_matrix(sparse.diags(unknown.astype(float)) @ self.members)
        found = members.T @ possible  # (n_groups, n_labels)
        rows = members.sum(axis=0).A1 > 0
        for group, (places, target) in enumerate(zip(self.places, self.target)):
            there = np.bincount(places, found[group], minlength=len(target)) > 0
            wrong = np.flatnonzero(rows[group] & (target > 0) & ~there)
            if len(wrong):
                labels = ", ".join(map(repr, classes[places == wrong[0]].tolist()))
                raise ValueError(
                    f"label_proportions give {target[wrong[0]]:.6g} to {labels}, which "
                    f"`constraints` forbid at all rows of unknown label{self.names[group]}; "
                    "correct one of them."
                )


def find_columns(wanted: list, X: Sequences, vectorizer: Any) -> list[int]:
    """Numbers of columns that are given by name or number."""
    columns = {k: k for k in range(X.shape[1])}
    if vectorizer is not None:
        names = vectorizer.get_feature_names_out().tolist()
        columns = {name: k for k, name in enumerate(names)}
    if missing := [column for column in wanted if column not in columns]:
        kind = "names" if vectorizer is not None else f"numbers from 0 to {X.shape[1] - 1}"
        raise ValueError(
            f"label_proportions has the column {missing[0]!r}, which X does not have; columns are "
            f"given by their {kind}."
        )
    return [columns[column] for column in wanted]


def _one_group(given: Mapping[Any, float], labels: list) -> tuple[np.ndarray, np.ndarray]:
    if new := [label for label in given if label not in labels]:
        raise ValueError(
            f"label_proportions has the label {new[0]!r}, which y does not have; the labels of y "
            f"are {labels[:8]}{'...' if len(labels) > 8 else ''}. Remove it, or put it into a set "
            "of possible labels in y. Labels of sequences of weight 0 do not count."
        )
    n, p, place = len(given), np.zeros(len(labels) + 1), {label: k for k, label in enumerate(given)}
    p[:n] = list(given.values())
    rest = max(0.0, 1 - p.sum())
    if n < len(labels):
        p[n] = rest
    elif rest > 1e-6:
        raise ValueError(
            f"label_proportions of all labels must sum to 1; got {1 - rest:.6g}. Correct them, or "
            "leave out a label, which then gets the rest."
        )
    return np.array([place.get(label, n) for label in labels], dtype=np.intp), p / p.sum()


class ProportionLikelihood(PartialLogLikelihood):
    """f(w) = -Σ_s weight_s · log p(Y_s | x_s) + λ N KL(p̃ ‖ q) + l2 · ‖w‖²₂.

    q is the model's mean label distribution over the rows U with unknown labels, and p̃ the given
    one:

        q(j) = Σ_{(s, t) ∈ U} weight_s μ_st(j) / N,   N = Σ_{(s, t) ∈ U} weight_s,
        ∂ N KL / ∂w = Σ_s Cov_s(φ, D_s),   D_s(y) = -Σ_{t: (s, t) ∈ U} weight_s p̃(y_t) / q(y_t):

    one pass of forward-backward for q, and the tangent of another in the direction D, which has
    scores of rows only. Labels that share the rest count as one in p̃ and q. With several groups,
    there is one such term for each, over the rows of U in the group. f is not convex.

    Parameters
    ----------
    scores, labels, offsets, weights, l2, threads
        See ``PartialLogLikelihood``.
    proportions : Proportions
    proportions_weight : float
        λ.

    References
    ----------
    G. S. Mann, A. McCallum (2010), "Generalized expectation criteria for semi-supervised learning
    with weakly labeled data", Journal of Machine Learning Research 11, §3-4.
    """

    def __init__(
        self, scores: ScoreMap, labels: AllowedLabels, offsets, weights, l2: float,
        threads: Threads, proportions: Proportions, proportions_weight: float,
    ):  # fmt: skip
        super().__init__(scores, labels, offsets, weights, l2, threads)
        of_rows = sparse.diags(labels.unknown * np.repeat(weights, np.diff(offsets)))
        members = sparse.csr_matrix(of_rows @ proportions.members)
        members.eliminate_zeros()
        self.sizes = members.sum(axis=0).A1
        blocks = [block for run in self.runs for block in run]
        self.members = {block.first: members[block.first : block.last] for block in blocks}
        self.proportions, self.proportions_weight = proportions, proportions_weight

    def add_up(self, W, chain, counts: bool = True) -> float:
        places, target = self.proportions.places, self.proportions.target
        jobs = zip(self.runs, self.buffers)
        sums = sum(self.threads.map(lambda job: self._marginals(W, chain, *job), jobs))
        q, groups = np.zeros(target.shape), np.arange(len(target))[:, None]
        np.add.at(q, (groups, places), sums[:, : places.shape[1]])
        q = np.maximum(q / np.maximum(self.sizes, LEAST)[:, None], LEAST)
        slopes = -self.proportions_weight * np.take_along_axis(target / q, places, axis=1)
        self.slopes, self.direction = np.zeros(sums.shape), Direction(in_float64(chain))
        self.slopes[:, : places.shape[1]] = slopes
        divergence = self.proportions_weight * (self.sizes @ rel_entr(target, q)).sum()
        return super().add_up(W, chain, counts) - float(divergence)

    def _marginals(self, W, chain, blocks: list[Block], work: ThreadBuffers) -> np.ndarray:
        # Weighted sums of marginals over the unlabelled rows of each group.
        sums = np.zeros((len(self.sizes), self.scores.width))
        for block in blocks:
            members = self.members[block.first]
            if members.nnz:
                psi = work.rows(None, block.first, block.last)
                self.scores.design.scores(W, block.first, block.last, psi)
                log_z = self.log_z[block.sequences]
                no_pairs = np.zeros(len(log_z))  # weights 0: no pair marginals are added here
                work.forward_backward(psi, block.offsets, no_pairs, chain, log_z)
                sums += members.T @ psi
        return sums

    def compare(
        self, psi: np.ndarray, block: Block, chain: Transitions, work: ThreadBuffers, counts: bool,
        entries: RowTransitions | None = None,
    ) -> None:  # fmt: skip
        """See ``PartialLogLikelihood``; adds the gradient of the divergence."""
        members = self.members[block.first]
        if not (counts and members.nnz):
            return super().compare(psi, block, chain, work, counts, entries)
        given, change = psi.astype(np.float64), members @ self.slopes
        super().compare(psi, block, chain, work, counts, entries)
        ones = np.ones(len(block.weights))
        add_covariances(psi, given, change, block, ones, self.direction, work)
        return None
