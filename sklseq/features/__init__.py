"""Extractors: from raw sequences to rows of features.

Imports: _lib, data.
"""

from typing import TYPE_CHECKING

from sklseq._lib.lazy_names import lazy_names

if TYPE_CHECKING:  # the names below, for type checkers
    from sklseq.features._active_potentials import count_active_potentials
    from sklseq.features._column_features import column_features
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
    "column_features",
    "count_active_potentials",
    "receptive_field",
]

# Loaded when first used: an exported model needs no extractor.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "_active_potentials": (
            "count_active_potentials",
            "count_firings",
        ),
        "_column_features": ("column_features",),
        "_dict": ("DictFeatures",),
        "_field": ("receptive_field",),
        "_lexicon": ("LexiconFeatures",),
        "_per_token": ("PerToken",),
        "_segment": ("SegmentFeatures",),
        "_template": ("TemplateFeatures",),
        "_token": ("TokenFeatures",),
        "_window": ("WindowFeatures",),
    },
)
