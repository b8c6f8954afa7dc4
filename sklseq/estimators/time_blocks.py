"""Cross-validation of one long sequence: contiguous folds of its pieces."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.model_selection import BaseCrossValidator

from sklseq._lib.checks import check_number
from sklseq._lib.estimator import check_plain_parameters
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike


class TimeBlockSplit(BaseCrossValidator):
    """Contiguous folds of sequences in the order of time, with a gap around the test part.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds.
    gap : int, default=0
        Sequences on either side of the test part that are not trained on, because they are similar
        to its first and last sequences.
    past_only : bool, default=False
        Whether to train on sequences before the test part only. They are then cut into
        n_splits + 1 parts of nearly equal size; the first part is used for training only.

    Raises
    ------
    ValueError
        If a parameter is wrong, there are too few sequences for the folds, or none is left to train
        on.

    See Also
    --------
    sklseq.RowBlocks.pieces : Cuts a long sequence into pieces, the sequences to be split.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklseq import CRFTagger, RowBlocks, TimeBlockSplit
    >>> labels = np.arange(300) // 7 % 2
    >>> X, y = RowBlocks(np.eye(2)[labels]).pieces(50, labels)
    >>> for train, test in TimeBlockSplit(3, gap=1).split(X):
    ...     print(train, test)
    [3 4 5] [0 1]
    [0 5] [2 3]
    [0 1 2] [4 5]
    >>> search = GridSearchCV(CRFTagger(), {"l2": [0.1, 1.0]}, cv=TimeBlockSplit(3, gap=1))
    >>> float(search.fit(X, y).best_score_.round(2))
    1.0
    """

    def __init__(self, n_splits: int = 5, *, gap: int = 0, past_only: bool = False):
        self.n_splits = n_splits
        self.gap = gap
        self.past_only = past_only

    def split(
        self, X: SequencesLike, y: LabelsLike | None = None, groups: ArrayLike | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Numbers of the sequences to train and to test on, for each fold.

        Parameters
        ----------
        X : list of sequences
            In the order of time.
        y, groups : ignored

        Yields
        ------
        train, test : ndarray
        """
        self._check()
        shape, past = getattr(X, "shape", None), bool(self.past_only)
        n = len(X) if shape is None else shape[0]
        parts = self.n_splits + past
        if n < parts:
            raise ValueError(
                f"n_splits={self.n_splits} needs at least {parts} sequences"
                f"{', the first to train on only' if past else ''}; got {n}. Cut a long sequence "
                "into more pieces."
            )
        cuts, every = np.arange(parts + 1) * n // parts, np.arange(n)
        for first, last in zip(cuts[past:-1], cuts[past + 1 :]):
            before = every < first - self.gap
            train = every[before] if past else every[before | (every >= last + self.gap)]
            if not len(train):
                raise ValueError(
                    f"gap={self.gap} leaves no sequence to train on beside {first} to {last - 1} "
                    f"of {n}; lower it, or cut a long sequence into more pieces."
                )
            yield train, every[first:last]

    def get_n_splits(
        self,
        X: SequencesLike | None = None,
        y: LabelsLike | None = None,
        groups: ArrayLike | None = None,
    ) -> int:
        """Number of folds.

        Parameters
        ----------
        X, y, groups : ignored

        Returns
        -------
        int
        """
        return self.n_splits

    def _check(self) -> None:
        check_plain_parameters(self)
        for name, least in (("n_splits", 1 if self.past_only else 2), ("gap", 0)):
            check_number(name, getattr(self, name), least, whole=True)
