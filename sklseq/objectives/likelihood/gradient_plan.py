"""Choice of the computation of the gradient: forward-backward, checkpointing or streaming."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sklseq.data.row_blocks import BLOCK_ROWS
from sklseq.inference.chain.linear_chain import _chain
from sklseq.objectives.likelihood.passes import (
    TAIL,
    Checkpoints,
    OnePass,
    PendingTooLarge,
    Stored,
    StoredOnce,
)

LEAST_ROWS = 64
# Bytes that forward-backward may keep for rows in blocks if "auto" is to choose it: users of blocks
# are short of memory, and streaming takes as long (10⁷ rows of two labels: 16 s both).
BLOCKS_KEPT = 1 << 27


class Plan(NamedTuple):
    """Choice of the gradient's computation.

    Attributes
    ----------
    gradient : "forward-backward", "checkpoint" or "streaming"
    passes : class of ``passes.py``, or None
        None for packed sequences, which ``likelihood.py`` processes.
    block_rows : int
        Rows worked on at a time.
    why : str
        Reason, for the user.
    keep : float
        Bytes that checkpointing may keep for the last rows, and "streaming" for deferred rows.
    or_checkpoint : bool
        Whether checkpointing replaces "streaming" if that does more work or lacks memory.
    """

    gradient: str
    passes: type | None
    block_rows: int
    why: str
    keep: float = 0.0
    or_checkpoint: bool = False


def plan_gradient(
    gradient: str, n_rows: int, n_labels: int, *, packed: bool, random_access: bool, budget: float
) -> Plan:
    """Choose the computation of the gradient.

    Parameters
    ----------
    gradient : str
        As in ``CRFTagger``.
    n_rows : int
        Rows of the longest sequence.
    n_labels : int
    packed : bool
        Whether X is in memory as one matrix, rather than in blocks.
    random_access : bool
        Whether all sequences can be read from any row on.
    budget : float
        Bytes that may be kept for the rows of a sequence.
    """
    factor = 8.0 * n_rows * _chain.padded_width(n_labels)
    kept = (4 if packed else 2) * factor
    allowed = budget if packed else min(budget, BLOCKS_KEPT)
    why = f"forward-backward keeps {_size(kept)}, of {_size(allowed)} allowed"
    or_checkpoint = False
    if gradient == "auto":
        gradient, or_checkpoint = _choose(kept <= allowed, n_labels, random_access, budget)
        why += "; checkpointing where labels rarely change" * or_checkpoint
    elif gradient == "checkpoint" and not random_access:
        raise ValueError(
            "gradient='checkpoint' reads blocks from the last to the first, but X can only be read "
            "from the beginning; use gradient='streaming', or pass an array, a memory map or a "
            ".npy file."
        )
    gradient = "streaming" if gradient == "emp" else gradient
    if gradient == "forward-backward" and packed:
        return Plan(gradient, None, n_rows, why)
    case = Stored if 2 * factor <= budget else StoredOnce
    passes = {"streaming": OnePass, "checkpoint": Checkpoints, "forward-backward": case}[gradient]
    block_rows, keep = _fit_block(gradient, n_labels, budget)
    return Plan(gradient, passes, block_rows, why, keep, or_checkpoint)


def _choose(fits: bool, n_labels: int, random_access: bool, budget: float) -> tuple[str, bool]:
    # The computation for gradient="auto", and whether checkpointing may replace it; ``fits``:
    # whether forward-backward does.
    if fits:
        return "forward-backward", False
    streams = _least("streaming", n_labels) <= budget
    if streams or not random_access:
        return "streaming", random_access
    return "checkpoint", False


def _fit_block(gradient: str, n_labels: int, budget: float) -> tuple[int, float]:
    # Rows of a block, and bytes left for what ``Plan.keep`` names.
    if budget < (needed := _least(gradient, n_labels)):
        raise ValueError(
            f"working_memory allows {_size(budget)}, but a block of {LEAST_ROWS} rows needs "
            f"{_size(needed)} with gradient={gradient!r}; raise it: "
            "sklearn.set_config(working_memory=<MiB>)."
        )
    a_row, fixed = _sizes(gradient, n_labels)
    block_rows = min(BLOCK_ROWS, int((budget - fixed) // a_row))
    return block_rows, budget - fixed - block_rows * _sizes("checkpoint", n_labels)[0]


def _least(gradient: str, n_labels: int) -> float:
    # Memory of the smallest block.
    a_row, fixed = _sizes(gradient, n_labels)
    return LEAST_ROWS * a_row + fixed


def _sizes(gradient: str, n_labels: int) -> tuple[float, float]:
    # Memory of a block: (bytes for each row, fixed number of bytes).
    width = _chain.padded_width(n_labels)
    a_row = 8.0 * width * 7
    if gradient != "streaming":
        return a_row, 0.0
    # Deferred rows take the same again. The fixed part holds, given each last label, marginals of
    # the last TAIL rows, and pair marginals of these rows, of the rows so far and of earlier rows.
    return 2 * a_row, 8.0 * width * width * (2 * TAIL + 3 * width)


def _size(n_bytes: float) -> str:
    power = next((k for k in range(3) if n_bytes < 1000 ** (k + 1)), 3)
    return f"{n_bytes / 1000**power:.3g} {('B', 'kB', 'MB', 'GB')[power]}"


@contextmanager
def explain_memory_error(plan: Plan) -> Iterator[None]:
    """Replace a MemoryError in the context by one with advice."""
    try:
        yield
    except PendingTooLarge as error:
        raise MemoryError(
            f"With gradient='streaming' {error}; raise it: "
            "sklearn.set_config(working_memory=<MiB>), or use gradient='checkpoint' on rows that "
            "can be read from anywhere."
        ) from error
    except MemoryError as error:
        raise MemoryError(
            f"gradient={plan.gradient!r} ran out of memory ({plan.why}); use gradient='streaming', "
            "whose memory does not grow with the sequence, on rows in blocks if X itself is too "
            "large."
        ) from error
