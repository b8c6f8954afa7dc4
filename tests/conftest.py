"""Generated examples: the same in each run, and without a deadline, for machines are shared."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "sklseq", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("sklseq")
