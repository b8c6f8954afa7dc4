"""Exact inference on linear chains, given nothing but potentials.

>>> import numpy as np
>>> from sklseq.inference import viterbi
>>> labels, scores = viterbi(np.eye(3), np.zeros((3, 3)))
>>> labels
array([0, 1, 2], dtype=int32)
"""

from sklseq.inference.chain import Marginals, forward_backward, nbest, sample, viterbi

__all__ = ["Marginals", "forward_backward", "nbest", "sample", "viterbi"]
