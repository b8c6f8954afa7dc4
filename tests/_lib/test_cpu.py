"""The choice between builds of the kernels by the processor."""

import pytest

from sklseq._lib.cpu import cpu_level


def test_an_unknown_build_is_refused(monkeypatch):
    monkeypatch.setenv("SKLSEQ_CPU", "fast")
    with pytest.raises(ValueError, match="SKLSEQ_CPU must be 'auto' or 'baseline'; got 'fast'"):
        cpu_level()
    monkeypatch.setenv("SKLSEQ_CPU", "baseline")
    assert cpu_level() == "baseline"
