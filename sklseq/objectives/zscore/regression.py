"""Ridge regression of label indicators on rows: the linear system behind the z-score."""

import numpy as np

from sklseq._lib.column_sizes import column_sizes
from sklseq.objectives.zscore.factorised import CentredRows, SolvedRows


class RidgeSystem(SolvedRows):
    """(Xᵀ diag(weights) X + ridge) V = Xᵀ diag(weights) Y, for label codes y.

    Means of columns may exceed their spreads by any factor: with the means m, n = Σ weights, the
    centred rows Z and D, the diagonal of ZᵀdZ + ridge, the matrix is ZᵀdZ + ridge + n m mᵀ, and is
    solved for U in

        V = T U,   T = I + D⁻¹ m mᵀ ((1 + n h)^-½ - 1) / h,   h = mᵀD⁻¹m,

    which makes D of D + n m mᵀ: Tᵀ(D + n m mᵀ)T = D. In these terms n m mᵀ is n / (1 + n h) m mᵀ,
    so no large numbers are left. Without a ridge, any D gives the solution of minimum norm, as all
    solutions have the same mᵀV.

    Attributes
    ----------
    gradient : ndarray of shape (n_columns, n_labels)
        Right-hand side, in terms of U.
    preconditioner : ndarray of shape (n_columns,)
        Inverse of D. Without a ridge, sizes of columns if these differ much: so that the solution
        found is that of minimum norm.
    """

    def __init__(self, rows: CentredRows, y: np.ndarray, n_labels: int, ridge: float):
        self.rows, self.y, self.ridge = rows, y, ridge
        self.means, self.total = rows.means, rows.total
        squares = rows.squares()
        if ridge > 0:
            diagonal = squares + ridge
        else:
            diagonal = np.square(column_sizes(squares + self.total * self.means**2))
        self.preconditioner = 1 / diagonal
        if not ridge:  # of the size of squares
            diagonal *= np.mean(squares / diagonal) or 1.0
        across = self.means / diagonal
        square = float(self.means @ across)
        self.across = across / (square or 1.0)
        self.shrunk = (1 + self.total * square) ** -0.5
        self.gradient = self.right_hand_side(rows.label_sums(y, n_labels))
        self.gradient += self.shrunk * np.outer(self.means, np.bincount(y, rows.d, n_labels))

    def right_hand_side(self, B: np.ndarray) -> np.ndarray:
        """TᵀB: in terms of U, of one in terms of V."""
        return B - np.outer(self.means, (1 - self.shrunk) * (self.across @ B))

    def solution_of(self, U: np.ndarray) -> np.ndarray:
        """V."""
        # mᵀV = shrunk · mᵀU may be less than the rounding of U, so it is added to nothing.
        of_means = self.means @ U
        V = U - np.outer(self.across, of_means)
        return V + np.outer(self.across, self.shrunk * of_means - self.means @ V)

    def hessian_product(self, U: np.ndarray) -> np.ndarray:
        """Tᵀ(Xᵀ diag(d) X + ridge)T times a block."""
        V = self.solution_of(U)
        product = self.right_hand_side(self.rows.product(V) + self.ridge * V)
        return product + np.outer(self.means, self.total * self.shrunk**2 * (self.means @ U))

    def finish(self, U: np.ndarray) -> None:
        """Take U as the solution."""
        self.solution = self.solution_of(U)
        self.scores = self.rows.times(self.solution) + self.shrunk * (self.means @ U)
