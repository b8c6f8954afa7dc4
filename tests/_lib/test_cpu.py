"""The choice between builds of the kernels by the processor."""

import pytest

from sklseq._lib.cpu import cpu_level, load_kernel


def test_an_unknown_build_is_refused(monkeypatch):
    monkeypatch.setenv("SKLSEQ_CPU", "fast")
    with pytest.raises(ValueError, match="SKLSEQ_CPU must be 'auto' or 'baseline'; got 'fast'"):
        cpu_level()
    monkeypatch.setenv("SKLSEQ_CPU", "baseline")
    assert cpu_level() == "baseline"


def test_a_build_that_was_not_made_is_named(monkeypatch, tmp_path):
    (tmp_path / "only_fast_v3.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SKLSEQ_CPU", "baseline")
    with pytest.raises(ImportError, match="only_fast is compiled for x86-64-v3 processors only"):
        load_kernel("only_fast")
    with pytest.raises(ModuleNotFoundError, match="No module named 'missing_kernel'"):
        load_kernel("missing_kernel")
