"""Extractors: from raw sequences to rows of features."""

from sklseq.features._dict import DictFeatures
from sklseq.features._template import TemplateFeatures

__all__ = ["DictFeatures", "TemplateFeatures"]
