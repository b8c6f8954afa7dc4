"""C structs of the recursions over segments: plan, chain, and rows of numbers.

Each is a set of pointers into NumPy arrays that the caller keeps alive. Pointers of rows are moved
so that cells and states keep the numbers that they have in the whole set; steps are counted within
a sequence. See `_segments.pyx` for the notation.
"""

from sklseq.inference.kernels._row_matrices cimport RowMatrices, row_matrices


cdef struct Plan:
    Py_ssize_t n                     # steps of the sequence
    Py_ssize_t most                  # states of a step, at most
    const long long* steps           # (n_sequences + 1,)  first step of each sequence
    const long long* cells           # (n_sequences + 1,)  first cell of each sequence
    const long long* step_states     # (n + 1,)
    const long long* entry           # (n,)
    const long long* first_cell      # (n_states,)  cells of a state: first_cell[v] to last_cell[v]
    const long long* last_cell
    const long long* target
    const int* mask
    const int* run
    const signed char* kind          # (n_cells,)
    const double* masks              # (n_masks, width)  1, or 0 if too long; or their logarithms


cdef struct Chain:
    Py_ssize_t L, width
    const double* matrix             # (width, width)  scores of transitions, or exp of them
    const double* transposed
    RowMatrices* of_row              # `matrix` of segments that start at a row, not in here: what
    RowMatrices* of_row_t            # changes would be read again; the same of `transposed`
    const double* start              # (width,)
    const double* end


cdef struct Trellis:
    const double* psi                # (n_cells, width)   scores
    double* F                        # (n_cells, width)   factors exp(psi), then marginals
    double* G                        # (n_states, width)  then its derivatives
    double* alpha                    # (n, width)
    double* u                        # (n, width)         alpha^, then its derivatives
    double* tokens                   # (n, width)         marginals of labels at steps
    double* factor                   # (n,)               powers of two
    double* scratch
    double* pairwise                 # (2, width, width)  sums over sequences: E left out; whole
    double* ends                     # (2, width)


cdef inline Plan read_plan(object segment_plan, const double[:, ::1] masks) except *:
    # Plan of a SegmentPlan that has at least one step; `run` is not set.
    cdef const long long[::1] steps = segment_plan.steps, cells = segment_plan.cells
    cdef const long long[::1] step_states = segment_plan.step_states, entry = segment_plan.entry
    cdef const long long[::1] first_cell = segment_plan.first_cell, target = segment_plan.target
    cdef const long long[::1] last_cell = segment_plan.last_cell
    cdef const int[::1] mask = segment_plan.mask
    cdef const signed char[::1] kind = segment_plan.kind
    cdef Plan plan
    plan.n, plan.most = 0, segment_plan.most
    plan.steps, plan.cells = &steps[0], &cells[0]
    plan.step_states, plan.entry = &step_states[0], &entry[0]
    plan.first_cell, plan.last_cell, plan.target = &first_cell[0], &last_cell[0], &target[0]
    plan.mask, plan.masks, plan.run, plan.kind = &mask[0], &masks[0, 0], NULL, NULL
    if kind.shape[0]:
        plan.kind = &kind[0]
    return plan


cdef inline Plan plan_of_sequence(const Plan* plan, Py_ssize_t s) noexcept nogil:
    cdef Plan one = plan[0]
    one.n = plan.steps[s + 1] - plan.steps[s]
    one.step_states, one.entry = plan.step_states + plan.steps[s], plan.entry + plan.steps[s]
    return one


cdef inline Chain read_chain(
    Py_ssize_t L, const double[:, ::1] matrix, const double[:, ::1] transposed,
    const double[:, ::1] boundary, object entries, RowMatrices* of_rows
) except *:
    cdef Chain chain
    chain.L, chain.width = L, matrix.shape[1]
    chain.matrix, chain.transposed = &matrix[0, 0], &transposed[0, 0]
    chain.of_row, chain.of_row_t = of_rows, of_rows + 1
    if of_rows != NULL:
        of_rows[0] = row_matrices(entries, matrix, False)
        of_rows[1] = row_matrices(entries, transposed, True)
    chain.start, chain.end = &boundary[0, 0], &boundary[1, 0]
    return chain


cdef inline Chain read_scores(
    object transitions, object entries, RowMatrices* of_rows
) except *:
    # Chain of a SegmentTransitions and its `entries_of_scores`, to which the caller must keep a
    # reference. of_rows: OUT, an array of two; or NULL.
    return read_chain(
        transitions.n_labels, transitions.score, transitions.score_t, transitions.boundary,
        entries, of_rows
    )


cdef inline Chain read_factors(
    object transitions, object entries, RowMatrices* of_rows
) except *:
    # Chain of the exponentials and of `entries_of_factors`; otherwise as `read_scores`.
    return read_chain(
        transitions.n_labels, transitions.E, transitions.E_t, transitions.ends, entries, of_rows
    )


cdef inline void go_to_sequence(const Chain* chain, const Plan* plan, Py_ssize_t s) noexcept nogil:
    # Rows of entries are counted from the first step of sequence s of the whole plan.
    chain.of_row.first = chain.of_row_t.first = plan.steps[s]


cdef inline const double* rows_from(const double[:, ::1] rows, Py_ssize_t first) noexcept nogil:
    # A pointer p such that row `first` at p is the first of `rows`; NULL if there are none.
    return &rows[0, 0] - first * rows.shape[1] if rows.shape[0] else NULL


cdef inline Trellis read_trellis(object work, object batch, Py_ssize_t first_cell) except *:
    # Trellis of a SegmentWorkspace and a Batch of at least one step, with first cell `first_cell`.
    cdef const double[:, ::1] psi = batch.psi
    cdef double[:, ::1] F = batch.F, tokens = batch.tokens, G = work.G, alpha = work.alpha
    cdef double[:, ::1] u = work.u, scratch = work.scratch, ends = work.ends
    cdef double[:, :, ::1] pairwise = work.pairwise
    cdef double[::1] factor = work.factor
    cdef Trellis rows
    rows.psi, rows.F = rows_from(psi, first_cell), <double*> rows_from(F, first_cell)
    rows.G, rows.alpha, rows.u, rows.tokens = &G[0, 0], &alpha[0, 0], &u[0, 0], &tokens[0, 0]
    rows.factor, rows.scratch = &factor[0], &scratch[0, 0]
    rows.pairwise, rows.ends = &pairwise[0, 0, 0], &ends[0, 0]
    return rows


cdef inline void step_factors(
    const Plan* plan, Py_ssize_t e, const double* psi, Py_ssize_t y, Py_ssize_t width,
    double* opened, double* closed
) noexcept nogil:
    # Log factors of the states of step e for label y: if the segment continues, and if it ends.
    cdef Py_ssize_t v, c, v0 = plan.step_states[e - 1]
    cdef double all_open = 0, all_closed = 0, mine, ends, x
    for v in range(v0, plan.step_states[e]):
        mine = ends = 0
        for c in range(plan.first_cell[v], plan.last_cell[v]):
            x = psi[c * width + y]
            if plan.kind[c] == 3:
                all_open += x
            elif plan.kind[c] == 2:
                all_closed += x
            elif plan.kind[c] == 1:
                mine += x
            else:
                ends += x
        opened[v - v0] = all_open + mine
        closed[v - v0] = all_closed + ends
