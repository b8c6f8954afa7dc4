"""Extractors: from raw sequences to rows of features.

Imports: _lib, data.
"""

from sklseq.features._active_potentials import count_active_potentials
from sklseq.features._dict import DictFeatures
from sklseq.features._field import receptive_field
from sklseq.features._lexicon import LexiconFeatures
from sklseq.features._per_token import PerToken
from sklseq.features._segment import SegmentFeatures
from sklseq.features._template import TemplateFeatures
from sklseq.features._token import TokenFeatures
from sklseq.features._window import WindowFeatures

__all__ = [
    "DictFeatures",
    "LexiconFeatures",
    "PerToken",
    "SegmentFeatures",
    "TemplateFeatures",
    "TokenFeatures",
    "WindowFeatures",
    "count_active_potentials",
    "receptive_field",
]

count_firings = count_active_potentials  # the name before 0.1
