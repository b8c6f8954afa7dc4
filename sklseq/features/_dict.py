"""Extractor of attributes from the feature dicts and attribute lists of python-crfsuite."""

from typing import Any, Self

import numpy as np
from scipy import sparse

from sklseq._lib.estimator import fitted_parameter
from sklseq.data.column_roles import roles_by_name
from sklseq.data.sequences import Sequences
from sklseq.data.types import ArrayLike, ChoiceLike, ColumnsLike, DTypeLike, SequencesLike
from sklseq.features._dict_transform import DictTransform, as_items
from sklseq.features._family import Extractor, as_names, check_some, to_sequences
from sklseq.features._name_table import NameTable


class DictFeatures(DictTransform, Extractor, auto_wrap_output_keys=None):
    """Attributes of items in the form of sklearn-crfsuite and python-crfsuite.

    A sequence is a list of items, one for each token. An item is

    * a dict: ``{"word": "cat"}`` is the attribute ``"word:cat"`` with weight 1,
      ``{"length": 3.0}`` and ``{"upper": True}`` are ``"length"`` and ``"upper"`` with that
      weight, and a dict, list or set as value gives its attributes with the prefix ``"key:"``;
    * or a list, tuple, set or other iterable of strings: attributes with weight 1.

    Bytes are read as UTF-8. Weights of a repeated attribute are added. Attributes of weight 0 or
    False are stored: as in CRFsuite, training gives them weights for the labels of their items.
    Attributes never seen in ``fit`` are dropped.

    Parameters
    ----------
    columns : str or list of str, default=None
        Keys of the dicts to read. None: all.
    min_count : int, default=1
        Drop attributes that fewer rows of the training data have.
    n_features : int, default=None
        A power of two: columns by hash of the attribute, without a vocabulary, for unbounded
        streams; weights of attributes that share a column are added. None: by vocabulary.
    dtype : {float64, float32}, default=float64
        Type of the output's values.
    transition_features : None, list, array, str, re.Pattern or callable, default=None
        Columns with weights for pairs of successive labels, too, as in
        :class:`~sklseq.CRFTagger`; they are stored in ``roles`` of the output.

    Attributes
    ----------
    vocabulary_ : dict of str to int
        Column of each attribute, in order of first occurrence; to be read only, as ``transform``
        looks attributes up in a table made of it once.
    n_features_out_ : int
        Number of attributes.

    Notes
    -----
    Intended differences from python-crfsuite: NaN and infinite weights are errors; a string as
    item is an error, whereas python-crfsuite reads its letters; mappings other than dicts are read
    like dicts, not as their keys alone; any iterable is an item, with or without a length.

    Cost O(attributes) time. Pairs of strings are looked up without joining them: ``"key:value"``
    is built only once, when it is added to the vocabulary. The hash table for this is built again
    from ``vocabulary_`` by the first ``transform`` after unpickling.

    Examples
    --------
    >>> from sklseq.features import DictFeatures
    >>> X = [[{"word": "the", "bias": 1}, {"word": "cat", "length": 3, "pre": ["c", "ca"]}]]
    >>> features = DictFeatures()
    >>> features.fit_transform(X).rows.toarray()
    array([[1., 1., 0., 0., 0., 0.],
           [0., 0., 1., 3., 1., 1.]])
    >>> features.get_feature_names_out().tolist()
    ['word:the', 'bias', 'word:cat', 'length', 'pre:c', 'pre:ca']
    """

    def __init__(
        self,
        *,
        columns: ColumnsLike | None = None,
        min_count: int = 1,
        n_features: int | None = None,
        dtype: DTypeLike = np.float64,
        transition_features: ChoiceLike | None = None,
    ):
        self.columns = columns
        self.min_count = min_count
        self.n_features = n_features
        self.dtype = dtype
        self.transition_features = transition_features

    def _fit_rows(self, X: Any, y: Any) -> Sequences:
        sequences = self._selected(as_items(X))
        check_some(sequences)
        table = NameTable()
        packed = self._packed(sequences, table, grow=self.n_features is None)
        names = table.names
        if self.min_count > 1:
            counts = np.bincount(packed.rows.indices, minlength=len(names))
            kept = np.flatnonzero(counts >= self.min_count)
            names = [names[i] for i in kept]
            packed, table = packed.with_rows(packed.rows[:, kept]), NameTable(names)
        self.vocabulary_ = dict(zip(names, range(len(names))))
        self.n_features_out_ = int(self.n_features or len(names))
        self._table = table
        return packed

    def _rows_of(self, X: Any) -> Sequences:
        return self._packed(self._selected(as_items(X)), self.names_table())

    def _packed(self, sequences: list, table: NameTable, grow: bool = False) -> Sequences:
        rows, unchecked = self._read(sequences, table, grow)
        packed = to_sequences(rows, self.dtype)
        if unchecked:
            packed.rows.sum_duplicates()
        return packed

    def restrict(self, support: ArrayLike) -> Self:
        """Drop attributes; the others keep their order.

        Parameters
        ----------
        support : array-like of bool, of shape (n_features_out,)
            The attributes to keep.

        Returns
        -------
        self : DictFeatures
        """
        self._check_fitted()
        support = np.asarray(support)
        if self.n_features is not None or support.shape != (self.n_features_out_,):
            raise ValueError(
                f"support must be a mask over {self.n_features_out_} attributes of a vocabulary; "
                f"got shape {support.shape}."
            )
        support = support.astype(bool)
        if fitted_parameter(self, "transition_features") is not None:
            self.roles_ = self.roles_[support]
        names = self.get_feature_names_out()[support].tolist()
        return self._set_vocabulary(dict(zip(names, range(len(names)))))

    def extend(self, X: SequencesLike) -> Self:
        """Add the attributes of further sequences after the known attributes.

        Parameters
        ----------
        X : list of sequences
            As in ``fit``. New attributes that occur in X at least ``min_count`` times are added;
            they are transition features if ``transition_features`` chooses them by name. Hashed
            features do not change.

        Returns
        -------
        self : DictFeatures
        """
        self._check_fitted()
        if self.n_features is not None:
            return self
        table = NameTable()
        packed = self._packed(self._selected(as_items(X)), table, grow=True)
        counts = np.bincount(packed.rows.indices, minlength=len(table.names)).tolist()
        known, names = self.vocabulary_, zip(table.names, counts)
        new = [name for name, count in names if count >= self.min_count and name not in known]
        if not new:
            return self
        self._set_vocabulary(known | dict(zip(new, range(len(known), len(known) + len(new)))))
        chosen = fitted_parameter(self, "transition_features")
        if chosen is not None:
            roles = roles_by_name(chosen, as_names(new))
            self.roles_ = np.concatenate([self.roles_, roles])
        return self

    def _set_vocabulary(self, vocabulary: dict[str, int]) -> Self:
        self.vocabulary_, self.n_features_out_ = vocabulary, len(vocabulary)
        self.__dict__.pop("_table", None)
        return self

    def inverse_transform(self, X: Sequences) -> list[list[dict[str, float]]]:
        """Return lists of dicts, attribute to weight, from transformed sequences.

        Parameters
        ----------
        X : Sequences
            As ``transform`` returns them.

        Returns
        -------
        list of list of dict
        """
        self._check_fitted()
        if not isinstance(X, Sequences) or X.shape[1] != self.n_features_out_:
            raise ValueError(
                f"X must be Sequences of {self.n_features_out_} features, as transform returns "
                f"them; got {X!r}."
            )
        names, rows = self.get_feature_names_out(), sparse.csr_matrix(X.rows)
        items = [
            dict(zip(names[rows.indices[a:b]].tolist(), rows.data[a:b].tolist()))
            for a, b in zip(rows.indptr[:-1], rows.indptr[1:])
        ]
        return [items[start:stop] for start, stop in zip(X.offsets[:-1], X.offsets[1:])]

    def _names(self, input_features: Any) -> Any:
        return self.vocabulary_
