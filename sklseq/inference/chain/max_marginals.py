"""Max-marginals of linear chains: the best score of all paths through each label of each row."""

import numpy as np

from sklseq.data.types import ArrayLike
from sklseq.inference.chain.large_scores import steps_of_sequences
from sklseq.inference.chain.linear_chain import PlainScores, check_chain, check_paths
from sklseq.inference.chain.row_transitions import TransitionLike

MOST = 2**18  # limit of the size of temporary arrays (sequences, n_labels, n_labels)


def max_marginals(
    emission: ArrayLike,
    transition: TransitionLike,
    offsets: ArrayLike | None = None,
    *,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
) -> np.ndarray:
    """The score of the best path through each label of each row.

    With the score s(y) of a path, emission scores ψ_t(j) and transition scores ψ(i, j) as in
    :func:`forward_backward`,

        m_t(j) = max_{y: y_t = j} s(y) = δ_t(j) + β_t(j),

        δ_t(j) = ψ_t(j) + max_i (δ_{t-1}(i) + ψ(i, j)),
        β_{t-1}(i) = max_j (ψ(i, j) + ψ_t(j) + β_t(j)).

    Parameters
    ----------
    emission, transition, offsets, start, end
        As in :func:`forward_backward`.

    Returns
    -------
    ndarray of shape (n_rows, n_labels), float64
        -inf for a label that no allowed path has at this row. The maximum of each row is the score
        of the best path of its sequence, up to rounding.

    Raises
    ------
    ValueError
        As in :func:`forward_backward`.

    Notes
    -----
    Cost O(n_rows · n_labels²) time and O(n_rows · n_labels) memory. NumPy processes row t of many
    sequences in one call, so a few long sequences take more time than many short ones with the
    same number of rows.

    References
    ----------
    J. Pearl (1988), "Probabilistic reasoning in intelligent systems", §5.3.

    Examples
    --------
    >>> import numpy as np
    >>> from sklseq.inference import max_marginals
    >>> max_marginals(np.array([[1.0, 0.0], [0.0, 0.5], [1.0, 0.0]]), np.eye(2))
    array([[4. , 2.5],
           [4. , 2.5],
           [4. , 2.5]])
    """
    emission, chain, offsets = check_chain(emission, transition, offsets, start, end)
    plain = PlainScores(emission, chain, offsets)
    psi, score = plain.psi, plain.score
    delta, beta = psi.copy(), np.zeros_like(psi)
    steps = list(steps_of_sequences(offsets, max(MOST // score.size, 1)))
    for rows in steps:
        score = score if plain.rows is None else plain.rows.take(rows)
        delta[rows] += (delta[rows - 1][:, :, None] + score).max(axis=1)
    for rows in reversed(steps):
        score = score if plain.rows is None else plain.rows.take(rows)
        beta[rows - 1] = (score + (psi[rows] + beta[rows])[:, None, :]).max(axis=2)
    last = offsets[1:][np.diff(offsets) > 0] - 1
    best = np.zeros(len(offsets) - 1)
    best[np.diff(offsets) > 0] = delta[last].max(axis=1)
    check_paths(best)
    shift = np.repeat(np.zeros(len(best)) + chain.shift, np.diff(offsets))
    return delta + beta + shift[:, None]
