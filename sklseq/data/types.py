"""Types of the arguments that public functions share."""

import os
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from numpy.typing import ArrayLike, DTypeLike

if TYPE_CHECKING:  # an exported model needs neither SciPy nor NumPy's generators
    import numpy as np
    from scipy import sparse

    from sklseq.data.row_blocks import RowBlocks
    from sklseq.data.segment_potentials import SegmentPotentials
    from sklseq.data.sequences import Sequences

__all__ = [
    "ArrayLike",
    "ChoiceLike",
    "ClassWeightLike",
    "ColumnsLike",
    "ConstraintsLike",
    "DTypeLike",
    "FunctionsLike",
    "KernelLike",
    "LabelsLike",
    "LexiconsLike",
    "LossLike",
    "MatrixLike",
    "PathLike",
    "RandomState",
    "SequencesLike",
    "TokensLike",
    "ValidLike",
]

PathLike: TypeAlias = str | os.PathLike[str]
RandomState: TypeAlias = "int | np.random.RandomState | np.random.Generator | None"
MatrixLike: TypeAlias = "ArrayLike | sparse.spmatrix | sparse.sparray"
# Sequences of tokens: dicts of columns, lists of strings, of dicts or of tuples.
TokensLike: TypeAlias = Iterable[Mapping[str, Sequence[Any]] | Sequence[Any]]
# Sequences of rows, packed or in a list; tokens for pipelines that read them.
SequencesLike: TypeAlias = (
    "Sequences | SegmentPotentials | Iterable[MatrixLike | RowBlocks] | TokensLike"
)
# A label for each row, or segments (start, stop, type), of each sequence; None, NaN or a set of
# possible labels for unknown labels.
LabelsLike: TypeAlias = Iterable[Iterable[Hashable | set[Any]]]
# Columns of tokens, by name or number.
ColumnsLike: TypeAlias = str | int | Sequence[str] | Sequence[int]
# Chosen columns of rows: names, numbers or a mask, a regular expression, a function of a name.
ChoiceLike: TypeAlias = str | re.Pattern[str] | Callable[[str], bool] | ArrayLike
# Allowed transitions: a name, a mask, or the forbidden pairs (label, next label).
ConstraintsLike: TypeAlias = str | ArrayLike | Collection[tuple[Any, Any]]
# Costs of wrong labels: a name, a matrix, costs by (true label, wrong label), a function of these.
LossLike: TypeAlias = "str | ArrayLike | Mapping[Any, float] | Callable[..., float]"
# A kernel between rows: a name, or a function of two matrices of rows.
KernelLike: TypeAlias = "str | Callable[..., MatrixLike]"
# Weights of labels.
ClassWeightLike: TypeAlias = Mapping[Any, float] | str | None
# Functions of a token or a segment that give attributes, alone or by name.
FunctionsLike: TypeAlias = Sequence[Callable[..., Any]] | Mapping[str, Callable[..., Any]] | None
# Word lists by name, as entries or paths, or paths alone.
LexiconsLike: TypeAlias = "Mapping[str, Iterable[Any] | PathLike] | Sequence[PathLike] | None"
# Which label paths are valid: "once", span types that may occur once, or a function of labels.
ValidLike: TypeAlias = str | Collection[Hashable] | Callable[[list], bool]
