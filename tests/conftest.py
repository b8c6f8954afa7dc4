"""Settings of generated examples, and which tests cannot run in several threads at once."""

import gc

import pytest
from hypothesis import HealthCheck, settings

# The same examples in each run, and no deadline, for machines are shared.
settings.register_profile(
    "sklseq", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("sklseq")

# Collecting makes millions of objects that stay: no garbage is looked for while they are made (a
# quarter of the time of collecting), nor among them while tests run.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


# What these hold would be one for all threads of `make test-threads`.
SHARED = {"tmp_path", "monkeypatch", "capsys", "cache"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if SHARED & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.thread_unsafe)


def pytest_terminal_summary(terminalreporter):
    """How much tests/differential has compared."""
    reports = [r for key in ("passed", "failed") for r in terminalreporter.stats.get(key, ())]
    counts = [v for r in reports for name, v in r.user_properties if name == "differential"]
    if counts:
        cases, comparisons, differences = map(sum, zip(*counts, strict=True))
        terminalreporter.write_line(
            f"differential: {cases} cases, {comparisons} comparisons, {differences} differences"
        )
