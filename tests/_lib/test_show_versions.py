"""The report of versions."""

from importlib.metadata import PackageNotFoundError

import numpy as np

import sklseq


def test_the_report_names_versions_and_settings(capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("SKLSEQ_CPU", "baseline")
    sklseq.show_versions()
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["sklseq"] == sklseq.__version__
    assert rows["numpy"] == np.__version__
    assert rows["OMP_NUM_THREADS"] == "3"
    assert rows["processor"].startswith("baseline kernels")


def test_a_missing_required_package_is_named(capsys, monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("sklseq._lib.show_versions.version", missing)
    sklseq.show_versions()
    assert capsys.readouterr().out.count("missing") == 4  # optional packages are left out
