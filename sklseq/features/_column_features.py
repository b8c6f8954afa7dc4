"""Features for columns of strings: a good start, without choices to make."""

from collections.abc import Sequence

from sklearn.base import BaseEstimator
from sklearn.pipeline import FeatureUnion

from sklseq._lib.checks import check_names
from sklseq.features._parse import symbol_templates, tag_templates, word_templates
from sklseq.features._segment import SegmentFeatures
from sklseq.features._template import TemplateFeatures
from sklseq.features._token import TokenFeatures
from sklseq.features._window import WindowFeatures


def column_features(
    columns: str | Sequence[str] = "w", *, symbols: bool = False, segments: bool = False
) -> BaseEstimator:
    r"""Return an extractor for columns of strings, the first of words: that of ``sklseq train``.

    It joins three: each word with its prefixes and suffixes (:class:`TokenFeatures`); lower case,
    last three letters, shapes, flags and length of the word and of its neighbours
    (:class:`WindowFeatures`); pairs of words, and windows, pairs and triples of the other columns
    (:class:`TemplateFeatures`).

    Parameters
    ----------
    columns : str or sequence of str, default="w"
        Names of the columns to read, words first; ``"w"`` is that of sequences of strings. Columns
        of numbers are read by :class:`PerToken`, which a ``FeatureUnion`` joins.
    symbols : bool, default=False
        Whether the first column holds symbols and not words, such as amino acids, letters, notes:
        templates alone, with a window of eleven values, pairs and triples.
    segments : bool, default=False
        Whether the model is a :class:`~sklseq.SemiCRFSegmenter`: :class:`SegmentFeatures` of the
        letters of single words and of the templates of the other columns, or of symbols.

    Returns
    -------
    FeatureUnion, TemplateFeatures or SegmentFeatures
        Not fitted. Names of the parts of the union: "templates", "letters", "neighbours".

    See Also
    --------
    TokenFeatures, WindowFeatures, TemplateFeatures : the parts, with their parameters.

    Notes
    -----
    :doc:`/features` has the scores of these features beside those of each part alone.

    Parameters of the parts are set by ``set_params``: with
    ``column_features().set_params(letters__transition_features=r"^w\.word=")`` each word also has
    weights for pairs of successive labels. For other columns join ``B`` lines of
    :class:`TemplateFeatures`, see :doc:`/transitions`.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq import CRFTagger
    >>> from sklseq.features import column_features
    >>> model = make_pipeline(column_features(), CRFTagger())
    >>> model.fit([["Ann", "sings"], ["it", "rains"]], [["NAME", "O"], ["O", "O"]])
    Pipeline(...)
    >>> model.predict([["Ann", "rains"]])
    [['NAME', 'O']]
    """
    names = [columns] if isinstance(columns, str) else check_names(columns, some=True)
    if symbols:
        extractor: BaseEstimator = TemplateFeatures(symbol_templates(names), columns=names)
    elif segments:
        extractor = _joined({"letters": TokenFeatures(columns=names[:1]), **_tags(names)})
    else:
        extractor = _joined(_words_and_tags(names))
    return SegmentFeatures(extractor, columns=names[0]) if segments else extractor


def _words_and_tags(names: list[str]) -> dict[str, BaseEstimator]:
    of_word = {"columns": names[:1], "suffixes": 2}
    for kind in ("lower", "shape", "short_shape", "flags", "length"):
        of_word[kind] = False  # the window has them
    near = TokenFeatures(columns=names[:1], word=False, prefixes=0, suffixes=[3])
    return {
        "templates": TemplateFeatures(word_templates(names), columns=names),
        "letters": TokenFeatures(**of_word),
        "neighbours": WindowFeatures(near, bos_eos=False),  # templates mark the ends
    }


def _tags(names: list[str]) -> dict[str, BaseEstimator]:
    """Templates of all columns but the first, if there are others."""
    templates = tag_templates(names)
    return {"templates": TemplateFeatures(templates, columns=names)} if templates else {}


def _joined(parts: dict[str, BaseEstimator]) -> FeatureUnion:
    union = FeatureUnion(list(parts.items()), verbose_feature_names_out=False)
    return union.set_output(transform="default")  # also if tables are configured: Sequences
