"""Does the suite notice? python -m tests.mutations [python | compiled | NUMBER ...]

Each fault is put into the sources, and the tests of that part have to fail. Python files are
changed while they are imported; compiled ones on disk, built, and restored whatever happens.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent / "sklseq"
INFERENCE, ONLINE, SEGMENTS = "test_inference", "test_online_inference", "test_segment_inference"
LISTS = "test_sparse_transitions"
DIFFERENTIAL = "test_differential"
# (file, text that occurs once or more: its first is replaced, fault, test files)
FAULTS = [
    # Objectives and solvers, in Python
    ("objectives/likelihood/likelihood.py", "w, gradient) - log_p", "w, gradient) + log_p", "test_crf"),
    ("objectives/likelihood/likelihood.py", "expected - observed, w", "observed - expected, w", "test_crf"),
    ("objectives/likelihood/likelihood.py", "(2 * self.l2 * rest)", "(self.l2 * rest)", "test_crf"),
    ("inference/chain/tangent.py", "p * (F - p @ F)", "p * F", "test_tangent"),
    ("inference/chain/tangent.py", "F[0] * S[0] + block", "block", "test_tangent"),
    ("inference/chain/tangent.py", "            u = u * of_row\n", "", "test_tangent"),
    ("inference/chain/tangent.py", "        self.score[chain.score == -np.inf] = 0\n", "        self.score += 1\n", "test_tangent"),
    ("objectives/likelihood/partial.py", "block.offsets, -block.weights", "block.offsets, block.weights", "test_curvature"),
    ("objectives/likelihood/long_hessian.py", "dpsi[-1] += direction.end", "pass", "test_curvature"),
    ("estimators/crf/standard_errors.py", "np.diag(inverse) - 2 *", "np.diag(inverse) - 1 *", "test_standard_errors"),
    ("estimators/crf/standard_errors.py", "gradient += l1 * np.sign(w)", "pass", "test_standard_errors"),
    ("objectives/scores/score_map.py", "transition[y[after - 1], y[after]] = True", "transition[y[after], y[after - 1]] = True", "test_crf"),
    ("objectives/likelihood/partial.py", "(weights, -weights)", "(weights, weights)", "test_partial"),
    ("objectives/likelihood/partial.py", "return blocks[-1].sequences.stop if blocks else 0", "return 0", "test_partial"),
    ("estimators/sources/partial_source.py", "numbers[np.argsort(is_partial[numbers], kind=\"stable\")]", "numbers", "test_partial"),
    ("objectives/likelihood/partial.py", "work.ends[1] += psi[last]", "work.ends[1] += psi[first]", "test_partial"),
    ("objectives/scores/score_map.py", "known & table[codes, j]", "table[codes, j]", "test_unknown_labels"),
    ("objectives/scores/score_map.py", "table[pairs % n]", "table[pairs // n]", "test_unknown_labels"),
    ("estimators/crf/early_stopping.py", "usable[np.isin(numbers[usable], _first_test_part(part, n))]", "np.intersect1d(_first_test_part(part, n), usable)", "test_unknown_labels"),
    ("estimators/sources/partial_source.py", " & _has_row(~labels.unknown, X)", "", "test_partial"),
    ("estimators/sources/partial_source.py", "self.numbers[a + bad[0]]", "a + bad[0]", "test_unknown_labels"),
    ("estimators/base.py", "weights[truth.unknown] = 0", "pass", "test_unknown_labels"),
    ("data/partial_labels.py", "if len(labels) < L:", "if True:", "test_unknown_labels"),
    ("data/partial_labels.py", "first : first + len(psi)", ": len(psi)", "test_unknown_labels"),
    ("inspection.py", "proba[1:2].sum()", "proba[-1]", "test_inspection"),
    ("inspection.py", "entr(proba / proba.sum())", "entr(proba)", "test_inspection"),
    ("data/sequences.py", "kept = weights > 0", "kept = weights >= 0", "test_zero_weights"),
    ("_lib/estimator.py", "value >= 0", "value >= -9", "test_hostile_parameters"),
    ("features/_columns.py", "if not own_names and names is None", "if False", "test_empty_tokens"),
    ("data/sequences.py", "    elif hasattr(X, \"to_list\") or", "    elif False and", "test_wrong_calls"),
    ("features/_per_token.py", "return tags.string and not tags.two_d_array", "return False", "test_wrong_calls"),
    ("data/row_blocks.py", "first=(self.number, row)", "first=(0, 0)", "test_wrong_calls"),
    ("data/row_blocks.py", "kind, row = labels.dtype.kind, row", "row = row", "test_wrong_calls"),
    ("metrics.py", "segments = [is_one or not any(map(len, y))", "segments = [is_one", "test_metrics"),
    ("display/_confusion.py", "if scheme is None:", "if True:", "test_displays"),
    ("data/sequences.py", "if isinstance(sequence, np.ma.MaskedArray):", "if False:", "test_wrong_calls"),
    ("data/segment_labels.py", "if isinstance(sequence, (Mapping, Set)) or", "if False and", "test_wrong_calls"),
    ("features/_columns.py", "and not numbers_only", "", "test_wrong_calls"),
    ("data/ones.py", " and bool((rows.data == 1).all())", "", "test_composition"),
    ("objectives/scores/design.py", "    if rows.data.all():", "    if True:", "test_zero_entries"),
    ("_lib/model_file.py", "if zlib.crc32(memoryview(data)[CHECKED_FROM:]) != checksum:", "if False:", "test_runtime"),
    ("runtime.py", "keep = max(0, self.n_seen - after - before)", "keep = max(0, self.n_seen - after)", "test_runtime"),
    ("features/_dict_transform.py", "return _merged(rows) if unchecked else rows", "return rows", "test_runtime"),
    ("estimators/crf/crfsuite_writer.py", "last = used & (sizes <= 12 * (k + 1))", "last = used & (sizes < 12 * (k + 1))", "test_crfsuite_writer"),
    ("features/_dict_transform.py", "if isinstance(x, Mapping) or is_table(x) else x", "if False else x", "test_frames"),
    ("datasets/_frames.py", "if seen.setdefault(value, start) != start:", "if False:", "test_frames"),
    ("datasets/_frames.py", "new |= np.asarray(", "new = np.asarray(", "test_frames"),
    ("datasets/_alignment.py", "starts[start] >= first and", "True and", "test_frames"),
    ("features/_per_token.py", "if numbers != self.numbers_:", "if False:", "test_per_token"),
    ("__main__.py", "if known.get(name, option) in", "if False and known.get(name) in", "test_command_line"),
    ("_lib/model_file.py", "name = os.path.realpath(given)", "name = os.path.abspath(given)", "test_command_line"),
    ("__main__.py", "if n_found not in (n, n + 1):", "if False:", "test_command_line"),
    ("__main__.py", "*lines, left = (left + block)", "*lines, left = (block)", "test_command_line"),
    ("objectives/scores/score_map.py", "gradient[b:c] = start[self.start_at]", "gradient[b:c] = end[self.start_at]", "test_crf"),
    ("objectives/scores/score_map.py", "np.maximum(np.where(self.largest", "np.minimum(np.where(self.largest", "test_units_of_features"),
    ("objectives/scores/score_map.py", "np.abs(rows.data, dtype=np.float64)", "np.abs(rows.data)", "test_row_blocks"),
    ("objectives/segment/_known_segments.pyx", "if ratio * square * by <= spread:", "if True:", "test_segment_hinge"),
    ("objectives/segment/_known_segments.pyx", "self.note((c - a) * self.L + self.true[c], -1)", "pass", "test_segment_hinge"),
    ("objectives/segment/_known_segments.pyx", "if self.mask[place]:", "if True:", "test_segment_hinge"),
    ("features/_active_potentials.py", "cut * (full + last) // 2", "cut * (full + last + 1) // 2", "test_segment_features"),
    ("features/_similarity.py", "\" \".join(filter(None, own)) in entries", "\" \".join(own) in entries", "test_segment_features"),
    ("estimators/semicrf/semicrf_segmenter.py", "free = np.flatnonzero(begun & bit == 0)", "free = np.arange(L)", "test_valid_paths"),
    ("data/segment_labels.py", "triple = segment[:3] if", "triple = (int(segment[0]), *segment[1:3]) if", "test_semicrf"),
    ("objectives/segment/segment_likelihood.py", "psi += self.loss[first", "psi += 0 * self.loss[first", "test_segment_hinge"),
    ("objectives/margin/hinge.py", "with self.as_settled():\n            return self.last", "if True:\n            return self.last", "test_hmsvm"),
    ("objectives/margin/hinge.py", "half + float(C @ xi**2)", "half + float(C @ xi)", DIFFERENTIAL),
    ("objectives/zscore/path_moments.py", "2 * m0 @ (R * score)", "m0 @ (R * score)", DIFFERENTIAL),
    ("objectives/likelihood/likelihood.py", "(part.add_up(W, chain), part.observed[0])", "(part.add_up(W, chain), 0)", DIFFERENTIAL),
    ("inference/kernels/_tangent.pyx", "A[t, j] / alpha[j] * mu[j]", "A[t, j] * mu[j]", "test_tangent"),
    ("inference/kernels/_tangent.pyx", "memset(&U[t, 0]", "memset(&U[t, 1]", "test_tangent"),
    ("inference/kernels/_tangent.pyx", "- (F[t + 1, j] - dpsi[t, j])", "- F[t + 1, j]", "test_tangent"),
    ("inference/kernels/_recursions.pxd", "total = 1 / total", "total = 1", "test_inference_input"),
    ("data/labels.py", "s.max() > MOST", "s.max() < 0", "test_label_dtypes"),
    ("data/sequences.py", "        weight = np.ascontiguousarray(sample_weight, dtype=np.float64)\n    except (TypeError, ValueError)", "        weight = np.ascontiguousarray(sample_weight, dtype=np.float64)\n    except TypeError", "test_wrong_calls"),
    ("objectives/margin/hinge.py", "k = min(k, most)", "k = k", "test_penalty_search"),
    ("objectives/margin/hinge.py", "states = (\"W\",) if self.is_linear", "states = () if self.is_linear", "test_penalty_search"),
    ("estimators/penalty_search.py", "return bool((behind <= racing).any())", "return True", "test_penalty_search"),
    ("estimators/penalty_search.py", "np.asarray(value)[chosen]", "value", "test_penalty_search"),
    ("objectives/margin/hinge.py", "self._add_scores(block, coef[rows] - before)", "pass", "test_kernel_rows"),
    ("objectives/margin/hinge.py", "@ block[moved]", "@ block[: moved.sum()]", "test_kernel_rows"),
    ("estimators/kernel_functions.py", "    found -= np.einsum(\"ij,ij->i\", B, B)\n", "", "test_kernel_rows"),
    ("objectives/margin/_margin.pyx", "self.S[j, self.place[s] + t]", "self.S[j, r + t]", "test_kernel_rows"),
    ("estimators/kernel_functions.py", "if n_first > 0:", "if n_first > 400:", "test_kernel_models"),
    ("estimators/kernel_functions.py", "if apart[i, j] > 1e-6", "if a == 0 and i == 0 and apart[i, j] > 1e-6", "test_kernel_models"),
    ("estimators/kernel_functions.py", "if not worst <= limit:", "if worst != worst:", "test_kernel_models"),
    ("estimators/kernel_model.py", "part = rows[a : a + max(step, 1)]", "part = rows[: max(step, 1)]", "test_kernel_models"),
    ("estimators/hmsvm/margin_problem.py", "unit = 1.0 if self.solver", "unit = 2.0 if self.solver", "test_hmsvm"),
    ("inspection.py", "if not hasattr(last, \"explain\"):", "if False:", "test_kernel_models"),
    ("objectives/margin/hinge.py", "paths.alpha[:] *= factor[paths.sequence]", "pass", "test_margin_starts"),
    ("objectives/margin/hinge.py", "self.boundary * end", "end", "test_margin_starts"),
    ("objectives/margin/hinge.py", "free &= np.bincount(owner[inside], barred, n) == 0", "pass", "test_margin_starts"),
    ("estimators/hmsvm/hmsvm_tagger.py", "if self.warm_start and problem.n_passes:", "if problem.n_passes:", "test_margin_starts"),
    ("data/labels.py", "[[loss.get((a, b), float(a != b))", "[[loss.get((b, a), float(a != b))", "test_margin_starts"),
    ("objectives/margin/smoothed.py", "slope[n:] / self.chain_ridge", "slope[n:]", "test_smoothing"),
    ("objectives/margin/smoothed.py", "k if self.squared else min(k, 1.0)", "k", "test_smoothing"),
    ("objectives/margin/smoothed.py", "half += 0.5 *", "half += 0.4 *", "test_smoothing"),
    ("objectives/margin/smoothed.py", "psi += cost / self.temperature", "psi += cost", "test_smoothing"),
    ("objectives/margin/smoothed.py", "if primal < self.primal:", "if True:\n            self.primal = min(primal, self.primal)", "test_smoothing"),
    ("objectives/margin/smoothed.py", "gradient[n:] += 2 * extra", "gradient[n:] += extra", "test_smoothing"),
    ("objectives/margin/smoothed.py", "self.rounding = self._rounding()", "self.rounding = 0.0", "test_smoothing"),
    ("estimators/kernel_functions.py", "mean, squares / size", "mean, float(np.square(stored).sum()) / size - mean**2", "test_kernel_models"),
    ("features/_similarity.py", "cosine[cosine > EQUAL] = 1.0", "np.minimum(cosine, 1.0, out=cosine)", "test_segment_features"),
    ("solvers/_smoothing.py", "if gap <= tol * primal:", "if gap <= 2 * tol * primal:", "test_smoothing"),
    ("estimators/hmsvm/margin_problem.py", "weights, trans=\"T\", lower=True", "weights, trans=\"N\", lower=True", "test_smoothing"),
    ("estimators/hmsvm/margin_problem.py", "coef[self._used_rows()] =", "coef[: len(weights)] =", "test_smoothing"),
    ("objectives/margin/smoothed.py", "self.weights[:] = 2 * self.temperature", "self.weights[:] = self.temperature", "test_smoothing"),
    ("objectives/margin/smoothed.py", "self.weights**2 / (4 * self.given)", "self.weights**2 / (8 * self.given)", "test_smoothing"),
    ("estimators/hmsvm/margin_path.py", "self.problem.averaging:", "False:", "test_penalty_search"),
    ("estimators/crf/crf_tagger_cv.py", "np.argsort(-values, kind", "np.argsort(values, kind", "test_penalty_search"),
    ("estimators/hmsvm/margin_problem.py", "if unknown and not", "if False and not", "test_wrong_calls"),
    ("data/labels.py", "if label.endswith(\"\\0\")", "if label == \"\\0\"", "test_label_nul"),
    ("data/segment_labels.py", "if found[2].endswith(\"\\0\"):", "if False:", "test_label_nul"),
    ("data/labels.py", "(s.astype(dtype, copy=False) for s in filled)", "filled", "test_label_dtypes"),
    ("objectives/zscore/moments.py", "max(0.0, (1.0 + mean_loss", "max(0.0, (1.0 - mean_loss", "test_zscore"),
    ("solvers/_owlqn.py", "shrunk = g - np.clip(g, -l1, l1)", "shrunk = g + np.clip(g, -l1, l1)", "test_solvers"),
    ("objectives/likelihood/stochastic.py", "part * more), other", "part), other", "test_stochastic"),
    ("objectives/likelihood/stochastic.py", "copies[1::2]]", "copies[::2]]", "test_stochastic"),
    ("objectives/likelihood/stochastic.py", "    G += sum(grown)", "    G += grown[0]", "test_stochastic"),
    ("objectives/likelihood/dual.py", "self.lam / sigma", "self.lam", "test_dual"),
    ("objectives/likelihood/dual.py", "w += joint / sigma", "w += joint / len(copies)", "test_dual"),
    ("solvers/_owlqn.py", "u[u * w < 0] = 0", "u[u * w > 0] = 0", "test_solvers"),
    ("solvers/_owlqn.py", "self.trial[self.trial * signs < 0] = 0", "pass", "test_solvers"),
    ("solvers/_search.py", "if len(w) <= FEW else", "if False else", "test_solvers"),
    ("solvers/_lbfgs.py", 'message = "flat" if', 'message = "flat" if False and', "test_units_of_features"),
    ("estimators/crf/crf_problem.py", "if result.value > value or imprecise:", "if result.value > value:", "test_units_of_features"),
    ("solvers/_lbfgs.py", "2 * falls[0] / (1 - r)", "falls[0] * r", "test_tolerance"),
    ("solvers/_adagrad.py", "highest = min(highest, OVERSHOT * loss)", "pass", "test_stochastic"),
    ("objectives/likelihood/stochastic.py", "- np.float32(LEAST_SQUARE)", "", "test_stochastic"),
    ("objectives/likelihood/summary.py", "counts[at] += one.counts", "counts[at] = one.counts", "test_sources"),
    ("objectives/likelihood/summary.py", "start[j] |= one.support.start", "pass", "test_sources"),
    ("estimators/crf/crf_problem.py", "if name in source.lacks:", "if False:", "test_sources"),
    ("estimators/crf/crf_problem.py", "self.f.value(w) + l1_norm(w, self.l1)", "self.f.value(w)", "test_reported"),
    ("estimators/crf/crf_problem.py", "if result.converged or result.n_iter >=", "if result.n_iter >= 1 or", "test_tolerance"),
    ("solvers/_history.py", "c[i] += a[i] - b", "c[i] += a[i] + b", "test_solvers"),
    ("solvers/_lbfgs.py", "gradient /= self.scale", "gradient *= self.scale", "test_units_of_features"),
    ("solvers/_dense.py", "W /= size[:, None]", "W *= size[:, None]", "test_units_of_features"),
    ("solvers/_search.py", "< CURVATURE * slope", "> CURVATURE * slope", "test_solvers"),
    ("solvers/_bcfw.py", "gap <= self.tol * self.primal", "gap >= self.tol * self.primal", "test_hmsvm"),
    ("solvers/_perceptron.py", "settle(last_is_right=True)", "settle()", "test_hmsvm"),
    ("objectives/zscore/elimination.py", "scores = -lost * self.residual", "scores = lost * self.residual", "test_moments"),
    ("_lib/inverse_root.py", "gram.diagonal(), 0) + ridges", "gram.diagonal(), 0) - ridges", "test_moments"),
    ("objectives/zscore/elimination.py", "full] = sums[full]", "full] = 0 * sums[full]", "test_zscore"),
    ("objectives/zscore/factorised.py", "rows = rows - self.means", "rows = rows + 0", "test_zscore"),
    ("_lib/inverse_root.py", "while Q.shape[1] and", "while not G.shape[1] and", "test_zscore"),
    ("_lib/inverse_root.py", "except linalg.LinAlgError:  #", "except ZeroDivisionError:  #", "test_zscore"),
    ("objectives/zscore/elimination.py", "< FAINT * squares", "< 0 * squares", "test_zscore"),
    ("_lib/inverse_root.py", " and within > SINGULAR", "", "test_zscore"),
    ("objectives/zscore/elimination.py", "spread <= self.d", "spread < -self.d", "test_zscore"),
    ("_lib/inverse_root.py", "basis.T @ (metric * G)", "0 * basis.T @ (metric * G)", "test_zscore"),
    ("objectives/zscore/factorised.py", "self.one * self.direction + unseen", "self.one * self.direction", "test_zscore"),
    ("objectives/zscore/moments.py", "n * fraction * np.outer", "0 * np.outer", "test_zscore"),
    ("objectives/zscore/regression.py", "self.shrunk * of_means - self.means @ V", "0 * of_means", "test_zscore"),
    ("objectives/likelihood/passes.py", "block.alive(", "block.probabilities(", "test_supports"),
    ("objectives/likelihood/passes.py", "block.alive(", "block.probabilities(", DIFFERENTIAL),
    ("objectives/likelihood/passes.py", "            self.spare.absorb(S, self.pending)", "            pass", "test_supports"),
    ("objectives/likelihood/passes.py", "max(n, min(2 * len(self.state)", "max(n, min(0 * len(self.state)", "test_long"),
    ("data/row_blocks.py", "lasts = [end] if last is None", "lasts = [last] if last is None", "test_table_files"),
    ("data/row_blocks.py", "self.limits = begin + first,", "self.limits = first,", "test_table_files"),
    ("data/row_blocks.py", "min(block.shape[0], last - n)", "block.shape[0]", "test_table_files"),
    ("data/table_files.py", "return json.load(file) == stamp", "return True", "test_table_files"),
    ("data/table_files.py", "if not one.isspace()", "", "test_table_files"),
    ("estimators/time_blocks.py", "every >= last + self.gap", "every >= last", "test_table_files"),
    ("estimators/block_sums.py", "before, n = block.last(self.L), last", "before, n = before, last", "test_block_sums"),
    ("estimators/block_sums.py", "span.before if span.in_logs else np.exp(span.before)", "np.exp(span.before)", "test_block_sums"),
    ("estimators/block_sums.py", "pairs = codes if previous is None else", "pairs = codes if True else", "test_block_sums"),
    ("inference/chain/expectation.py", "work[1, :L] + h[:, -1]", "work[1, :L]", "test_block_sums"),
    ("inference/chain/expectation.py", "(None if self.n else start)", "start", "test_block_sums"),
    ("objectives/likelihood/passes.py", "if repeated > n_rows // 4 and", "if not agreed and", "test_long"),
    ("objectives/likelihood/short.py", "counts.end += psi[", "counts.end += 0 * psi[", "test_long"),
    ("solvers/_cg.py", "np.max(parts / np.where(wholes > 0, wholes, 1), initial=0.0)", "parts.max() / wholes.max()", "test_zscore"),
    ("solvers/_cg.py", "np.sqrt(preconditioner)", "np.sqrt(preconditioner * 0 + 1)", "test_solvers"),
    ("solvers/_cg.py", ", _share(gain, total)", "", "test_zscore"),
    ("objectives/zscore/leave_out.py", "fitted.round(DIGITS)", "fitted", "test_zscore"),
    ("objectives/zscore/leave_out.py", "[0] < LOST", "[0] < 0 * LOST", "test_zscore"),
    ("estimators/zscore/zscore_problem.py", 'if tagger.constrained == "decoding":', "if False:", "test_zscore"),
    ("estimators/zscore/leave_out_search.py", "number[which[given[which]]]", "which[which < len(self.codes)]", "test_zscore_cv"),
    ("objectives/zscore/moments.py", "kappa * scale", "kappa", "test_zscore_cv"),
    ("objectives/zscore/moments.py", "counts.sum(axis=1), counts.sum(axis=0)", "counts.sum(axis=0), counts.sum(axis=1)", "test_zscore_cv"),
    ("objectives/zscore/kernel_ridge.py", "gram @ A + ends @ (ends.T @ A)", "gram @ A", "test_zscore_kernels"),
    ("objectives/zscore/kernel_ridge.py", "product *= root[:, None]", "product *= root", "test_zscore_kernels"),
    ("estimators/zscore/kernel_space.py", "np.repeat(weights > 0, X.lengths))[self.support]", "np.repeat(weights >= 0, X.lengths))[self.support]", "test_zscore_kernels"),
    ("estimators/zscore/kernel_space.py", "total.merged(found)", "found.merged(found)", "test_zscore_kernels"),
    ("objectives/zscore/leave_out.py", "0.0, scale * table", "0.0, table", "test_zscore_cv"),
    ("estimators/validation.py", "if name not in known", "if name in ()", "test_partial_fit"),
    ("estimators/zscore/zscore_problem.py", "< (np.finfo(dtype).eps", "< 0 * (np.finfo(dtype).eps", "test_zscore"),
    ("data/segment_potentials.py", "(start < 0) | (stop > ends)", "(start < 0) & (stop > ends)", "test_inference_input"),
    ("inference/chain/linear_chain.py", "if wrong.any():", "if False:", "test_inference_input"),
    # Decoding, containers and readers, in Python
    ("inference/chain/sparse_transitions.py", "np.maximum(np.exp(score), least)", "np.exp(score)", "test_supports"),
    ("inference/chain/sparse_transitions.py", "LEAST_LABELS = 5", "LEAST_LABELS = 1", LISTS),
    ("inference/chain/sparse_transitions.py", "if least < mix else", "if least == 0 else", "test_supports"),
    ("inference/chain/linear_chain.py", "log_z[a:b], rows)\n    check_paths(log_z)", "log_z[a:b], rows)", INFERENCE),
    ("inference/chain/linear_chain.py", "np.ascontiguousarray(self.score.T)", "np.ascontiguousarray(self.score)", INFERENCE),
    ("data/sequences.py", "np.where(key < 0, key + n, key)", "np.where(key < 0, key + n - 1, key)", "test_properties"),
    ("data/sequences.py", "self.offsets[which] - offsets[:-1]", "self.offsets[which] - offsets[1:]", "test_sequences"),
    ("data/labels.py", "complete[:, None], goes_on[:, None] & same_type", "complete[:, None], goes_on[:, None]", "test_labels"),
    ("estimators/base.py", "(truth >= 0) & (flat == ", "(flat == ", "test_unseen_labels"),
    ("estimators/crf/crf_tagger.py", "score[unseen] = -np.inf", "pass", "test_unseen_labels"),
    ("_lib/estimator.py", "return getattr(as_fitted(estimator), name)", "return getattr(estimator, name)", "test_fitted_parameters"),
    ("features/_window.py", "@fitted_property", "@property", "test_fitted_parameters"),
    ("features/_segment.py", "@fitted_property", "@property", "test_fitted_parameters"),
    ("_lib/threads.py", "    check_n_jobs(n_jobs)\n    return", "    return", "test_fitted_parameters"),
    ("estimators/semicrf/semicrf_segmenter.py", "terms[unseen | ", "terms[", "test_unseen_labels"),
    ("estimators/semicrf/semicrf_segmenter.py", "self.predict_labels(X), sample_weight=sample_weight", "self.predict_labels(X)", "test_unseen_labels"),
    ("_lib/callbacks.py", "_as_new(estimator) | reconstruct", "vars(estimator) | reconstruct", "test_callbacks"),
    ("_lib/callbacks.py", '{"sample_weight": weight}', '{"sample_weight": weight, "objective": 0.0}', "test_callbacks"),
    ("objectives/margin/hinge.py", "self._settled = None\n            self._restore", "self._restore", "test_callbacks"),
    ("objectives/margin/hinge.py", "            self._restore_states(last)", "            pass", "test_hmsvm"),
    ("features/_per_token.py", "with no_tables():\n            out = inner", "inner.set_output(transform='default')\n        if True:\n            out = inner", "test_per_token"),
    ("features/_columns.py", "if name not in self.names:", "if False:", "test_composition"),
    ("data/sequences.py", "    __rmul__ = __mul__", "    __mul__ = None", "test_composition"),
    ("data/segment_labels.py", "    _check_iob2(flat, offsets, ", "    (lambda *_: None)(flat, offsets, ", "test_semicrf"),
    ("data/sequences.py", 'raise TypeError(not_a_table("Sequences"))', "return np.zeros((len(self), 1))", "test_sklearn_tools"),
    ("data/labels.py", "if len(flat) and len(known) and (flat", "if False and (flat", "test_unseen_labels"),
    ("_lib/threads.py", "raise queue.errors[min(queue.errors)]", "raise queue.errors[max(queue.errors)]", "test_threads"),
    ("_lib/threads.py", "queue.stopped = True", "pass", "test_threads"),
    ("data/store.py", "< width:\n", "<= width:\n", "test_shards"),
    ("datasets/_conll.py", "line = line.strip(\" \").rstrip(\" \\t\")", "line = line.strip(\" \")", "test_readers"),
    ("datasets/_conll.py", "_SPACES_BESIDE_TAB.sub(\"\\t\", line)", "line", "test_readers"),
    ("datasets/_conllu.py", "end < first <= last", "first <= last", "test_readers"),
    ("datasets/_conllu.py", "last == n_empty + 1", "last > n_empty", "test_readers"),
    ("metrics.py", "weights = weight[known] if weight[known].any() else None", "weights = weight[known] + 1e-300", "test_metrics"),
    ("data/strict_spans.py", "first, last = last[::-1], first[::-1]", "pass", "test_metrics"),
    ("data/strict_spans.py", "begins\": \"OI BI II! IB= BB=", "begins\": \"OI OB II! IB= BB=", "test_metrics"),
    ("data/span_rules.py", "~same & inside, ~same", "~same, ~same", "test_span_sums"),
    ("inference/chain/span_sums.py", "ended = self.rules.ended", "ended = ~self.rules.goes_on", "test_span_sums"),
    ("inference/chain/span_sums.py", "q *= np.where(rules.goes_on[i, j]", "q *= np.where(rules.goes_on[i, j] & False", "test_span_sums"),
    ("inference/kernels/_once.pyx", "if value > best:", "if value >= best:", "test_once"),
    ("inference/chain/once.py", "sequences = sequences[more.any(axis=1)]", "sequences = sequences[:0]", "test_once"),
    ("data/labels.py", "(offsets - first).tolist()", "offsets.tolist()", "test_label_output"),
    ("estimators/label_output.py", "self._sklearn_output_config =", "self._output =", "test_label_output"),
    ("estimators/weights.py", "weights > 0 if sign ==", "weights < 0 if sign ==", "test_inspection"),
    ("data/characters.py", "start = text.find(token, stop)", "start = text.find(token)", "test_inspection"),
    ("data/characters.py", "last < found[-1][1]", "False", "test_inspection"),
    ("inspection.py", "if is_search and not hasattr", "if False and not hasattr", "test_inspection"),
    ("datasets/_frames.py", "if not any(map(is_missing, items)):", "if True:", "test_frames"),
    ("inspection.py", "if inner is model:", "if inner is model or True:", "test_inspection"),
    ("inference/chain/span_sums.py", "np.minimum(proba, 1)", "np.minimum(proba, 1) * (proba > 1e-3)", "test_span_sums"),
    ("data/strict_spans.py", "whole = ended[after]", "whole = ended[after] | True", "test_metrics"),
    ("inference/segment/segment_closure.py", "        nodes.update((e * L", "        set().update((e * L", "test_online_futures"),
    ("inference/segment/segmentations.py", "apart = max(self.apart, ", "apart = max(0, ", "test_online_futures"),
    ("estimators/online/items.py", "place(int(found[3]), int(found[2]))", "place(int(found[3]), 0)", "test_online_stream"),
    ("estimators/online/stream.py", "if chain is None:", "if True:", "test_online_stream"),
    ("estimators/online/stream.py", "t + self._max_wait <= now", "t <= now", "test_online_clock"),
    ("estimators/online/stream.py", "skip + n - self._model.before", "skip + n", "test_online_clock"),
    ("estimators/online/stream.py", "self._arrivals = before[1]", "pass", "test_online_clock"),
    ("objectives/segment/candidate_margin.py", "+ cost - cost[best][of]", "- cost", "test_candidate_margin"),
    ("objectives/segment/candidate_margin.py", "2 * self.l2 * w\n", "self.l2 * w\n", "test_candidate_margin"),
    ("objectives/segment/candidate_margin.py", "int(np.argmin(", "int(np.argmax(", "test_candidate_margin"),
    ("estimators/semicrf/segment_reranker.py", "clone(base).fit(_take(X, train), [y[s] for s in train])", "model", "test_segment_reranker"),
    ("estimators/semicrf/segment_reranker.py", "self._fit_texts(tokens, truth, train)", "self._fit_texts(tokens, truth, range(len(y)))", "test_segment_reranker"),
    ("estimators/semicrf/segment_reranker.py", "set(segments) ^ set(true)", "set(segments) & set(true)", "test_segment_reranker"),
    ("estimators/semicrf/segment_reranker.py", "np.argsort(-scores[a:b]", "np.argsort(scores[a:b]", "test_segment_reranker"),
    ("estimators/semicrf/segment_reranker.py", "for p, c in zip(proba, found) if segment in c", "for p, c in zip(proba[:1], found)", "test_segment_reranker"),
    ("estimators/semicrf/whole_features.py", "labels[k + 1 :]", "labels[k + 2 :]", "test_segment_reranker"),
    ("estimators/semicrf/whole_features.py", "known.get((s, *segment), UNSEEN)", "known.get((s, *segment), 0)", "test_segment_reranker"),
    ("estimators/semicrf/temperature.py", "1 - 1 / (n_right + 2), 1 /", "1.0, 1 /", "test_temperature"),
    ("estimators/semicrf/temperature.py", "getattr(scaled, name) / temperature", "getattr(scaled, name) * temperature", "test_temperature"),
    ("estimators/semicrf/temperature.py", "(1 - target) * np.log1p(-p)", "0 * p", "test_temperature"),
    ("estimators/semicrf/temperature.py", "-float(self.weights @ (", "-float(np.sum(", "test_temperature"),
    ("estimators/semicrf/semicrf_segmenter.py", "for name in WEIGHTS:", "for name in WEIGHTS[:1]:", "test_temperature"),
    ("estimators/online/segment_stream.py", "outside = fitted_parameter(self._segmenter, \"outside\")", "outside = self._segmenter.outside", "test_online_segments"),
    ("estimators/online/segment_stream.py", "rows[times < n - self.first]", "rows[times <= n - self.first]", "test_online_segments"),
    ("estimators/online/segment_stream.py", "start if self.label < 0 else transition[self.label]", "start", "test_online_segments"),
    ("estimators/online/segment_stream.py", "self.n_pending - self._model.before", "self.n_pending", "test_online_segments"),
    ("estimators/online/sources.py", "max(0.0, deadline - clock())", "None", "test_online_clock"),
    ("inference/kernels/_online.pyx", "self.commit(self.queue[self.n_queued + k - 1].label, k)", "self.commit(self.queue[self.n_queued].label, k)", "test_online_clock"),
    ("estimators/online/stream.py", "acquire(blocking=False)", "acquire(blocking=False) in (0, 1)", "test_online_misuse"),
    ("estimators/online/checkpoints.py", "and value.dtype.kind in", "and value.dtype.kind not in", "test_online_misuse"),
    ("estimators/online/checkpoints.py", "if (origin != beam", "if False and (origin != beam", "test_online_misuse"),
    ("estimators/online/items.py", "and item.shape[0] == 1", "or True", "test_online_misuse"),
    ("estimators/online/online_decoder.py", "self._labels_of(y, labels), labels", "y, labels", "test_online_misuse"),
    ("inference/chain/online_rules.py", "if not isinstance(number, numbers.Real):", "if False:", "test_online_misuse"),
    ("estimators/online/checkpoints.py", "not least <= value <= most", "not least <= value", "test_online_misuse"),
    ("estimators/online/tuning.py", "paths.latency + self.delay", "paths.latency", "test_online_tuning"),
    ("estimators/online/tuning.py", "_take(X, train), _take(y, train)", "X, y", "test_online_tuning"),
    ("estimators/online/pool.py", "n_seen[stream] - 1 - position", "n_seen[stream] - position", "test_online_pool"),
    ("estimators/online/pool.py", "n_waiting - before\n", "n_waiting - before + 1\n", "test_online_pool"),
    ("inference/kernels/_online.pyx", "memcpy(self.origin, at + n + 5 * width", "memcpy(self.found, at + n + 5 * width", "test_online_futures"),
    ("inference/kernels/_online.pyx", "if not keep:", "if True:", "test_online_pool"),
    ("inference/kernels/_online.pyx", "push_row(goal != 0)", "push_row(False)", "test_last_rows"),
    ("inference/kernels/_online.pyx", "push_row(t >= n - held)", "push_row(False)", "test_last_rows"),
    ("estimators/online/stream.py", "features=True, held=True", "features=True", "test_last_rows"),
    ("runtime.py", "[0], n, held=True)", "[0], n)", "test_last_rows"),
    ("inference/kernels/_online.pyx", "if self.marginal:\n            self.retrace()\n            return", "if False:\n            return", "test_online_marginals"),
    ("inference/kernels/_online.pyx", "share[b] * self.costs[b, a]", "share[b] * self.costs[a, b]", "test_online_marginals"),
    # Rows that are read again
    ("objectives/likelihood/block_sequence.py", "if found == self.sums[first // self.unit + k]:", "if True:", "test_row_blocks"),
    ("objectives/likelihood/block_sequence.py", "if last > self.n_rows:", "if False:", "test_row_blocks"),
    ("data/row_blocks.py", "_check_entries(csr, ", "(lambda *_: None)(csr, ", "test_row_blocks"),
    ("data/row_blocks.py", "if block.shape[1] != width:", "if False:", "test_row_blocks"),
    ("data/row_blocks.py", "self.sums[k : k + 1] != sums[-1:]", "False", "test_row_blocks"),
    ("data/sequences.py", "found = check_entries(packed.rows) if packed.is_sparse else None", "found = None", "test_row_blocks"),
    ("objectives/likelihood/summary.py", "if self.checksum() != checksum:", "if False:", "test_shards"),
    ("estimators/crf/monitor.py", "finish(SolverResult(", "print(SolverResult(", "test_row_blocks"),
    ("_lib/_checksum.pyx", "                b[k] += a[k]\n            at += size", "            at += size", "test_row_blocks"),
    # Compiled: recursions
    ("inference/kernels/_chain.pyx", "log_z[s] + (T - 1) * top if", "log_z[s] + T * top if", INFERENCE),
    ("inference/kernels/_chain.pyx", "        if v > top:\n            top = v\n            best = i", "        if v >= top:\n            top = v\n            best = i", INFERENCE),
    ("inference/kernels/_chain.pyx", "for t in range(T - 2, -1, -1):\n        j = first", "for t in range(T - 2, 0, -1):\n        j = first", INFERENCE),
    ("inference/kernels/_chain.pyx", "+ ahead[j] - log_beta[i])", "+ ahead[j] + log_beta[i])", INFERENCE),
    ("_lib/exponential.h", "x < -708 ? 0 : q", "q", INFERENCE),
    ("_lib/exponential.h", "r = r - n * 0x1.cf79abc9e3b3ap-40;", "", INFERENCE),
    ("_lib/exponential.h", "x == x ? q : x;", "q;", INFERENCE),
    ("inference/kernels/_sparse.pxd", "return 1.0 / 1024", "return 0.0", LISTS),
    ("inference/kernels/_sparse.pxd", "if not listed[i * m.L + j]:", "if listed[i * m.L + j]:", LISTS),
    ("inference/kernels/_chain.pyx", "m.floor = lists[6]", "m.floor = 0", LISTS),
    ("objectives/likelihood/sparse_lattice.pxd", "q.S[p] = q.E[p] - q.base[q.j[p]]", "q.S[p] = q.E[p]", LISTS),
    ("objectives/likelihood/sparse_lattice.pxd", "exp_double(max(x, -708.0))", "exp_double(x)", LISTS),
    ("inference/kernels/_online.pyx", "if one >= 0 and labels[b] != one:", "if one > 0 and labels[b] != one:", ONLINE),
    ("inference/kernels/_online.pyx", "self.alive[self.next[j]] = ", "self.alive[j] = ", ONLINE),
    ("inference/kernels/_online.pyx", "if label >= 0:\n                self.alive[label]", "if label >= 0:\n                self.alive[0]", ONLINE),
    ("inference/kernels/_online.pyx", "(self.n_pending - (not self.early))", "self.n_pending", ONLINE),
    ("inference/kernels/_online.pyx", "self.p[self.next[b] if by_next else b]", "self.p[b]", ONLINE),
    ("inference/kernels/_online.pyx", "self.scratch[b] += self.leave[b]", "pass", ONLINE),
    ("inference/kernels/_online.pyx", "self.ahead[j] = self.score[label, j]", "pass", ONLINE),
    ("inference/kernels/_online.pyx", "self.reached = self.n_rows == 0", "pass", "test_online_stream"),
    ("inference/kernels/_online.pyx", "if bounded and not least <= ", "if bounded and not least < ", ONLINE),
    ("inference/kernels/_online.pyx", "filter_row(self.filtered, self.row", "filter_row(self.log_alpha, self.row", ONLINE),
    ("inference/kernels/_online.pyx", "self.end[j] if ended and top", "0 if ended and top", ONLINE),
    ("inference/kernels/_online.pyx", "if not -self.largest <= row[j] <= self.largest", "if not row[j] < INFINITY", "test_online_stream"),
    ("inference/kernels/_segments.pyx", "pairwise[k] += weight * rows", "pairwise[k] += rows", SEGMENTS),
    ("inference/kernels/_segments.pyx", "ends[k] += weight * chain.start[k] * ", "ends[k] += weight * ", SEGMENTS),
    ("inference/kernels/_visit_rows.pxd", "target[i + k] += g; ", "target[i + k] = g;  ", SEGMENTS),
    ("inference/kernels/_visit_rows.pxd", "going[k] += g * ahead;", "going[k] += ahead;", SEGMENTS),
    ("inference/kernels/_segment_plan.pyx", "target[v] == target[v - 1] + 1", "True", SEGMENTS),
    ("features/_item_reader.pyx", "self._end_rows(query.row)", "self._end_rows(0)", "test_dict_features"),
    ("features/_item_reader.pyx", "        hold(text)\n        let_go(key.text)", "        pass", "test_dict_features"),
    ("features/_item_reader.pyx", "            hold(self.queue[i].key)\n            hold(self.queue[i].value)", "            pass", "test_dict_features"),
    ("features/_item_reader.pyx", "key.hash * BASE + COLON, query.value", "key.hash * BASE, query.value", "test_dict_features"),
    ("features/_item_reader.pyx", "return not overflow and", "return", "test_dict_features"),
    ("features/_jaro_winkler.pyx", "misses = n - needed", "misses = n - needed - 1", "test_segment_features"),
    ("features/_jaro_winkler.pyx", "moved // 2", "moved", "test_segment_features"),
    ("features/_jaro_winkler.pyx", "(lowest - 0.1 * prefix)", "(lowest + 0.1 * prefix)", "test_segment_features"),
    ("inference/kernels/_segment_best.pyx", "if alpha[j] >= row[j]:", "if alpha[j] <= row[j]:", SEGMENTS),
    ("inference/kernels/_log_domain.pxd", "        x[k] -= total", "        x[k] += total", "test_expected_features"),
    ("objectives/scores/_linear.pyx", "mu[t, y[t]] -= weight", "mu[t, y[t]] += weight", "test_crf"),
    ("objectives/scores/_linear.pyx", "ends[1, j] += mu[last, j]", "ends[1, j] += mu[first, j]", "test_crf"),
    ("objectives/likelihood/_ascent.pyx", "change = new_mu[k] - mu[", "change = new_mu[k] + mu[", "test_dual"),
    ("objectives/likelihood/_ascent.pyx", "- 0.5 * q.lam * norm", "- 1.0 * q.lam * norm", "test_dual"),
    ("objectives/likelihood/_descent.pyx", "w[0] -= rate * g", "w[0] += rate * g", "test_stochastic"),
    ("objectives/likelihood/_descent.pyx", "stamp[block] = update", "pass", "test_stochastic"),
    ("objectives/likelihood/_descent.pyx", "if temper < 1:", "if temper < 0:", "test_stochastic"),
    ("objectives/likelihood/_descent.pyx", "at.pair_mu[y[t - 1] * W + y[t]] -= 1", "at.pair_mu[y[t] * W + y[t - 1]] -= 1", "test_stochastic"),
    ("objectives/margin/_margin.pyx", "self.psi[u, b[t]] -= x", "self.psi[u, b[t]] += x", "test_hmsvm"),
    ("objectives/margin/_margin.pyx", "self.score[b[t - 1], b[t]] -= x", "self.score[b[t - 1], b[t]] -= 0", "test_hmsvm"),
    # What every question about every structure finds
    ("inference/chain/sparse_transitions.py", "np.maximum(np.exp(score), least)", "np.exp(score)", DIFFERENTIAL),
    ("inference/segment/segmentations.py", "(limits == 0) | (np.arange", "(limits < 0) | (np.arange", DIFFERENTIAL),
    ("inference/segment/segment_closure.py", "nodes.update(", "list(", DIFFERENTIAL),
    ("inference/segment/segment_closure.py", "if not plan.apart:", "if False:", DIFFERENTIAL),
    ("estimators/semicrf/semicrf_segmenter.py", "score = np.zeros(len(X))", "score = np.zeros(len(X), dtype=int)", DIFFERENTIAL),
    ("inference/kernels/_chain.pyx", "labels[k, 0] = <int> (state // n)", "labels[k, 0] = <int> (state % n)", DIFFERENTIAL),
    ("inference/kernels/_chain.pyx", "log_alpha[t, i] + matrix[i * L + j]", "log_alpha[t, i] + matrix[j * L + i]", DIFFERENTIAL),
    ("inference/kernels/_segment_tokens.pyx", "weight * chain.start[k]", "chain.start[k]", DIFFERENTIAL),
    ("inference/kernels/_segments.pyx", "log_alpha[e - 1, k] + chain.end[k]", "log_alpha[e - 1, k] + chain.start[k]", DIFFERENTIAL),
]  # fmt: skip

HOOK = """
import importlib.machinery as m, os, sys
path, old, new = {fault!r}
read = m.SourceFileLoader.get_data
def get_data(self, name):
    if os.path.basename(path)[:-3] + '.cpython' in name and name.endswith('.pyc'):
        raise OSError
    data = read(self, name)
    if name.endswith(path):
        assert old.encode() in data, 'the text is not there any more'
        data = data.replace(old.encode(), new.encode(), 1)
    return data
m.SourceFileLoader.get_data = get_data
sys.dont_write_bytecode = True
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def run(path: str, old: str, new: str, tests: str) -> int:
    """pytest's exit code with the fault in place: 1 if tests fail, 0 if none does."""
    arguments = ["-x", "-q", "-p", "no:cacheprovider", str(next(TESTS.rglob(f"{tests}.py")))]
    file, command = ROOT / path, [sys.executable, "-m", "pytest"]
    if path.endswith(".py"):
        command = [sys.executable, "-c", HOOK.format(fault=("sklseq/" + path, old, new))]
    source = file.read_text(encoding="utf-8")
    if old not in source:
        return -1
    try:
        if not path.endswith(".py"):
            file.write_text(source.replace(old, new, 1), encoding="utf-8")
        done = subprocess.run(
            [*command, *arguments], cwd=ROOT.parent, capture_output=True, text=True, timeout=1800
        )
    finally:
        if not path.endswith(".py"):
            file.write_text(source, encoding="utf-8")
            os.utime(file)
    if done.returncode not in (0, 1):  # a crash, or an import that fails: noticed too, but say so
        print(done.stdout[-600:] + done.stderr[-600:], flush=True)
    return done.returncode


def main() -> int:
    chosen, survived = sys.argv[1:], 0
    for k, (path, old, new, tests) in enumerate(FAULTS):
        kind = "python" if path.endswith(".py") else "compiled"
        if chosen and kind not in chosen and str(k) not in chosen:
            continue
        start = time.perf_counter()
        code = run(path, old, new, tests)
        verdict = {0: "SURVIVED", -1: "NOT FOUND"}.get(code, "caught")
        survived += verdict != "caught"
        print(
            f"{k:2} {verdict:9} {time.perf_counter() - start:4.0f} s  {path}: {old!r} -> {new!r} "
            f"({tests})",
            flush=True,
        )
    return min(survived, 1)


if __name__ == "__main__":
    sys.exit(main())
