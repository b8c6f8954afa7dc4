"""Command line: ``sklseq train``, ``tag``, ``evaluate`` and ``inspect`` on column files.

Each command calls readers, estimators and metrics of the package. Imports in functions:
an exported model is loaded without scikit-learn.
"""

import argparse
import ast
import codecs
import io
import os
import pickle
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from sklseq import __version__
from sklseq._lib.checks import counted
from sklseq._lib.drafts import draft
from sklseq._lib.lines import as_lines
from sklseq._lib.model_file import MAGIC, new_file_name, unpack_model
from sklseq.datasets import read_conll
from sklseq.datasets._conll import (
    EncodingError,
    FormatError,
    OneColumnError,
    check_start,
    conll_text,
    read_text,
)
from sklseq.datasets._conll_batches import conll_batches, text_blocks

TAGGERS = ("CRFTagger", "HMSVMTagger", "ZScoreTagger", "SemiCRFSegmenter")
EXTRACTORS = ("TemplateFeatures", "TokenFeatures", "SegmentFeatures")
# A first column of at most so many values, each so many times on average, holds symbols, not words.
MOST_SYMBOLS, TIMES = 100, 20


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 after an error, 2 for wrong options."""
    try:
        args = _parser().parse_args(argv)
    except SystemExit as stop:  # argparse has printed the reason
        return int(stop.code or 0)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: _say(args, f"warning: {message}")
            _open_stream("stdout")
            args.run(args)
            sys.stdout.flush()
        return 0
    except BrokenPipeError:  # the reader has closed the pipe
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (for the interpreter's last flush)
        return 1
    except KeyboardInterrupt:
        return 130
    except (UsageError, ValueError, TypeError, ImportError, OSError) as error:
        _say(args, _message(error))
        return 2 if isinstance(error, UsageError) else 1


def _message(error: Exception) -> str:
    """Text of an error, with the options of a command in place of the parameters of functions."""
    text = str(error)
    if isinstance(error, EncodingError):
        return text.replace("; give the", "; give by --encoding the")
    if isinstance(error, FormatError):
        text = text.replace("give the separator", "give by --separator the separator")
        return text.replace("by comment=", "by --comment")
    if isinstance(error, OSError) and error.strerror:
        place = "standard input or output" if error.filename is None else error.filename
        return f"{place or repr(place)}: {error.strerror}"
    return text


class UsageError(Exception):
    """Error for an invalid option; the message says which are allowed."""


class _Sequences(NamedTuple):
    """Sequences that follow each other in a file."""

    X: list[dict[str, list[str]]]
    y: list[list[str]] | None
    separator: str = " "  # of the columns of the file
    line: int = 1  # of the first token


def _say(args: argparse.Namespace, message: str) -> None:
    print(f"sklseq {args.command}: {message}", file=sys.stderr)


# --------------------------------------------------------------------------------------- options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sklseq",
        description="Label sequences in column files: one token a line, columns separated by tabs "
        "or spaces, a blank line after each sequence, the label in the last column.",
        epilog="To start: sklseq train -m names.model train.txt; sklseq evaluate -m names.model "
        "test.txt; sklseq tag -m names.model new.txt. sklseq COMMAND --help lists options.",
    )
    parser.add_argument("--version", action="version", version=f"sklseq {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_train(commands)
    _add_tag(commands)
    _add_evaluate(commands)
    _add_inspect(commands)
    return parser


def _add_train(commands: Any) -> None:
    train = commands.add_parser(
        "train",
        help="train a model on a column file",
        description="Train a model on a column file: words in the first column, labels in the "
        "last.",
        epilog="Example: sklseq train -v -m names.model --columns w,pos train.txt",
    )
    _add_model(train, help="where to save the model (a pickle)")
    _add_input(train)
    _add_features(train)
    _add_tagger(train)
    train.add_argument("--export", metavar="FILE", help="also write the model for fast loading")
    train.add_argument("--progress", action="store_true", help="show a progress bar")
    train.add_argument(
        "-v", "--verbose", action="store_true", help="say what was read and which features are used"
    )
    train.set_defaults(run=_train)


def _add_features(train: Any) -> None:
    train.add_argument(
        "--columns", type=_names, metavar="w,pos",
        help="names of all columns but the label; default c0,c1,...",
    )  # fmt: skip
    train.add_argument(
        "--features",
        choices=EXTRACTORS,
        help="default: letters of the words in the first column and of their neighbours, and "
        "templates of all columns (column_features)",
    )
    train.add_argument(
        "--templates",
        metavar="FILE",
        help="template file of CRF++ or Wapiti, in place of other features",
    )


def _add_tagger(train: Any) -> None:
    train.add_argument(
        "--tagger", choices=TAGGERS, default=TAGGERS[0],
        help="default CRFTagger; SemiCRFSegmenter reads labels in IOB2 as segments",
    )  # fmt: skip
    train.add_argument(
        "--set", type=_assignment, action="append", default=[], metavar="NAME=VALUE",
        help="a parameter of the tagger (l2=0.01), or of the features "
        "(features__neighbours__after=2; with --templates features__boundary=mark)",
    )  # fmt: skip
    train.add_argument(
        "--dev",
        metavar="FILE",
        help="a development set: stop when the score on it no longer rises (CRFTagger)",
    )


def _add_tag(commands: Any) -> None:
    tag = commands.add_parser(
        "tag",
        help="add a column of predicted labels",
        description="Write a column file, or words of text, with predicted labels in the last "
        "column.",
        epilog="Example: sklseq tag -m names.model new.txt > tagged.txt",
    )
    _add_model(tag, help="a model of train, saved or exported; load models of people you trust")
    _add_input(tag)
    tag.add_argument(
        "--text",
        action="store_true",
        help="the input has one sequence a line, tokens separated by white space",
    )
    tag.add_argument("--labels", action="store_true", help="write only labels, one sequence a line")
    tag.add_argument(
        "--confidence",
        action="store_true",
        help="a column with the probability of the predicted label, or segment, in front of the "
        "labels",
    )
    tag.set_defaults(run=_tag)


def _add_evaluate(commands: Any) -> None:
    evaluate = commands.add_parser(
        "evaluate",
        help="compare predicted labels with true ones",
        description="Print precision, recall and F1 of spans (B-PER, I-PER), or accuracies.",
        epilog="Examples: sklseq evaluate -m names.model test.txt; sklseq evaluate tagged.txt",
    )
    _add_model(
        evaluate,
        required=False,
        help="a model; without it the last two columns are the true and the predicted label",
    )
    _add_input(evaluate)
    evaluate.add_argument("--mode", choices=("conlleval", "strict"), help="how to read spans")
    evaluate.add_argument("--scheme", help="of --mode strict: iob2, iobes, ...")
    evaluate.set_defaults(run=_evaluate)


def _add_inspect(commands: Any) -> None:
    inspect = commands.add_parser(
        "inspect",
        help="describe a model and list its largest weights",
        description="Describe a model, and list the largest weights of transitions, features and "
        "transition features.",
    )
    _add_model(inspect, help="a saved model of train; load models of people you trust")
    inspect.add_argument("-n", type=_count, default=20, help="number of weights (default 20)")
    inspect.set_defaults(run=_inspect)


def _add_model(command: Any, *, help: str, required: bool = True) -> None:
    command.add_argument("-m", "--model", metavar="FILE", required=required, help=help)


def _add_input(command: Any) -> None:
    command.add_argument(
        "file", nargs="?", default="-", help="may be compressed; default: standard input"
    )
    command.add_argument(
        "--separator", type=_separator, metavar="CHARACTER",
        help="between columns, such as , or tab; default: tab, or spaces and tabs",
    )  # fmt: skip
    command.add_argument("--encoding", type=_encoding, default="utf-8", help="default utf-8")
    command.add_argument(
        "--comment", metavar="START", help="skip lines of a column file that start with it"
    )


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise argparse.ArgumentTypeError(f"must be names separated by commas; got {text!r}")
    return names


def _separator(text: str) -> str:
    separator = "\t" if text in ("tab", "\\t") else text
    if len(separator) != 1 or separator in "\r\n":
        raise argparse.ArgumentTypeError(f"must be one character, or tab; got {text!r}")
    return separator


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be an integer, 0 or more; got {text!r}")
    return int(text)


def _encoding(name: str) -> str:
    try:
        "".encode(name)  # refuses "hex", which is not an encoding of text
        return codecs.lookup(name).name
    except LookupError:
        raise argparse.ArgumentTypeError(f"{name!r} is not the name of an encoding") from None


def _assignment(text: str) -> tuple[str, Any]:
    """Name and value of ``name=value``; a value that is not a Python literal is a string."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"must have the form NAME=VALUE; got {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


# -------------------------------------------------------------------------------------- commands


def _train(args: argparse.Namespace) -> None:
    _check_parts(args)
    _check_outputs(args)
    templates = _template_text(args)
    _new_model(args, args.columns or ["c0"], templates)  # names wrong options before files are read
    X, y = _read_filled(args, args.file, columns=args.columns)
    model = _model_for(args, X, y, templates)
    if args.dev is not None:
        X, y = _with_dev(args, model[-1], X, y)
    with _progress(model, args.progress):
        model.fit(X, y)
    _sparsify(model[-1])
    with draft(args.model) as file:  # named -m once the export is written, too
        file.write(pickle.dumps(model))
        file.flush()
        if args.export is not None:
            from sklseq.deployment import export

            export(model, args.export)


def _model_for(args: argparse.Namespace, X: list, y: list, templates: str | None) -> Any:
    """Return the Pipeline for the columns of X; warn of columns and labels that look wrong."""
    columns = list(X[0])
    values = {name: set().union(*(x[name] for x in X)) for name in columns}
    n_tokens, n_values, n_labels = sum(map(len, y)), len(values[columns[0]]), len(set().union(*y))
    symbols = n_values <= MOST_SYMBOLS and n_tokens >= TIMES * n_values
    model = _new_model(args, columns, templates, symbols)
    if templates is not None:
        _check_templates(args.templates, model[0])
    _warn_of_numbers(values)
    _warn_of_labels(args.file, n_tokens, n_labels)
    if args.verbose:
        read = f"Sequences: {len(X)}; tokens: {n_tokens}; labels: {n_labels}; columns: "
        _say(args, f"{read}{', '.join(columns)}.")
        kind = f"{'symbols' if symbols else 'words'}, as {columns[0]} has {n_values} different"
        _report_features(args, kind, model[0])
    return model


def _sparsify(tagger: Any) -> None:
    """Store weights of which most are zero in less space; predictions do not change."""
    if hasattr(tagger, "sparsify") and 2 * np.count_nonzero(tagger.coef_) < tagger.coef_.size:
        tagger.sparsify()


def _check_outputs(args: argparse.Namespace) -> None:
    """Raise an error if a model cannot be written, or would replace a file of this command."""
    inputs = {"FILE": args.file, "--dev": args.dev, "--templates": args.templates}
    files = {"-m": args.model, "--export": args.export, **inputs}
    known: dict[str, str] = {}
    for option, path in files.items():
        if path is None or (path == "-" and option in inputs):
            continue
        name = os.path.realpath(path) if option in inputs else new_file_name(path)
        if known.get(name, option) in ("-m", "--export") and name in known:
            raise UsageError(
                f"{known[name]} and {option} are the same file, {path!r}, which the model would "
                "replace; give another name."
            )
        known.setdefault(name, option)


def _new_model(
    args: argparse.Namespace, columns: list[str], templates: str | None, symbols: bool = False
) -> Any:
    """Return the Pipeline that the options describe, with its parameters set."""
    from sklearn.pipeline import Pipeline

    import sklseq

    tagger = getattr(sklseq, args.tagger)()
    extractor = _new_extractor(args, columns, templates, symbols)
    model = Pipeline([("features", extractor), ("tagger", tagger)])
    known = {name.removeprefix("tagger__"): name for name in model.get_params() if "__" in name}
    for name, value in args.set:
        if name not in known:
            raise UsageError(f"--set: {name!r} is not one of the parameters{_like(name, known)}")
        model.set_params(**{known[name]: value})
    return model


def _like(name: str, known: dict[str, str]) -> str:
    """End of a message: names with the same last part, similar names, or all."""
    last = name.rpartition("__")[2]
    near = [k for k in known if k.rpartition("__")[2] == last] or get_close_matches(
        name, known, cutoff=0.5
    )
    return f"; did you mean {' or '.join(near)}?" if near else f" {', '.join(known)}."


def _check_parts(args: argparse.Namespace) -> None:
    """Raise an error if the extractor or an option does not fit the tagger, or each other."""
    segments = args.tagger == "SemiCRFSegmenter"
    if args.features not in (None, "TemplateFeatures") and args.templates:
        raise UsageError("--templates is for --features TemplateFeatures; leave one of them out.")
    if args.dev is not None and args.tagger != "CRFTagger":
        raise UsageError("--dev is for --tagger CRFTagger; leave one of them out.")
    if args.features == "SegmentFeatures" and not segments:
        raise UsageError(
            "--features SegmentFeatures is for --tagger SemiCRFSegmenter; give both, or neither."
        )
    if args.export is not None and segments:
        raise UsageError("--export writes no SemiCRFSegmenter; leave one of them out.")


def _new_extractor(
    args: argparse.Namespace, columns: list[str], templates: str | None, symbols: bool
) -> Any:
    from sklseq.features import (
        SegmentFeatures,
        TemplateFeatures,
        TokenFeatures,
        WindowFeatures,
        column_features,
    )

    if args.features == "TemplateFeatures" or templates is not None:
        return TemplateFeatures(templates, columns=columns)
    if args.features == "TokenFeatures":
        return WindowFeatures(TokenFeatures(columns=columns[:1]))
    if args.features == "SegmentFeatures":
        return SegmentFeatures(TokenFeatures(columns=columns[:1]), columns=columns[0])
    segments = args.tagger == "SemiCRFSegmenter"
    return column_features(columns, symbols=symbols, segments=segments)


def _report_features(args: argparse.Namespace, kind: str, extractor: Any) -> None:
    """Say which features the model has; ``kind``: what the first column holds, and why."""
    features = " ".join(repr(extractor).split())
    if args.features is None and args.templates is None:
        features = f"column_features for {kind} values"
    _say(args, f"Features: {features}.")


def _warn_of_numbers(values: dict[str, set[str]]) -> None:
    """Warn of columns that hold measurements; ``values``: distinct cells of each column."""
    many = {name: cells for name, cells in values.items() if len(cells) > MOST_SYMBOLS}
    found = [name for name, cells in many.items() if all(map(_is_number, cells))]
    if found:
        others = f", and so do columns {', '.join(found[1:])}" if len(found) > 1 else ""
        warnings.warn(
            f"Column {found[0]} holds {len(many[found[0]])} different numbers{others}; each is "
            "read as a word: for measurements, train in Python with PerToken.",
            UserWarning,
            stacklevel=2,
        )


def _warn_of_labels(file: str, n_tokens: int, n_labels: int) -> None:
    if n_labels > MOST_SYMBOLS and n_tokens < TIMES * n_labels:
        warnings.warn(
            f"The last column of {file}, that of labels, has {n_labels} different values at "
            f"{n_tokens} tokens; if labels are in another column, put it last.",
            UserWarning,
            stacklevel=2,
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _with_dev(args: argparse.Namespace, tagger: Any, X: list, y: list) -> tuple[list, list]:
    """Add the development set, whose score ends training."""
    from sklearn.model_selection import PredefinedSplit

    X_dev, y_dev = _read_filled(args, args.dev, columns=args.columns)
    if len(X_dev[0]) != len(X[0]):
        raise ValueError(
            f"{args.dev} has {len(X_dev[0]) + 1} columns, and {args.file} {len(X[0]) + 1}; "
            "give a development set with the columns of the training file."
        )
    given = PredefinedSplit([-1] * len(X) + [0] * len(X_dev))
    tagger.set_params(early_stopping=True, validation_fraction=given)
    return X + X_dev, y + y_dev


@contextmanager
def _progress(model: Any, wanted: bool) -> Iterator[None]:
    """Show iterations by scikit-learn's callback, which is not saved with the model."""
    if not wanted:
        yield
        return
    try:
        from sklearn.callback import ProgressBar

        model.set_callbacks(ProgressBar())
    except ImportError as error:
        raise UsageError("--progress needs scikit-learn 1.9 or newer, and rich.") from error
    # Extractors have no iterations to show.
    warnings.filterwarnings("ignore", "The estimator .* does not support callbacks", UserWarning)
    yield
    model.set_callbacks()


def _template_text(args: argparse.Namespace) -> str | None:
    if args.templates is None:
        return None
    _, text = read_text(args.templates, args.encoding)
    if all(line.lstrip()[:1] in ("", "#") for line in as_lines(text)):
        raise ValueError(
            f"{args.templates} holds no templates; add some, or leave out --templates."
        )
    return text


def _check_templates(path: str, extractor: Any) -> None:
    """Raise an error with the line of the first template that cannot be used."""
    from sklseq.features._parse import parse_templates

    for number, line in enumerate(as_lines(extractor.templates), 1):
        try:
            parse_templates([line], extractor.columns)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error


def _tag(args: argparse.Namespace) -> None:
    if args.labels and args.confidence:
        raise UsageError("--confidence adds a column, but --labels writes no columns; drop one.")
    model, columns = _load(args.model)
    if args.text and len(columns) != 1:
        raise ValueError(
            f"{args.model} reads the columns {', '.join(columns)}, and text has words only; give "
            "a column file, without --text."
        )
    if args.text and args.comment is not None:
        raise UsageError("--comment is for column files, and --text reads text; drop one.")
    output = _Output(args)
    batches = _read_text(args, columns[0]) if args.text else _read(args, columns)
    for k, batch in enumerate(batches):
        try:
            last, rows = _last_step(model, batch.X)
            predicted = _labels_of(last, rows)
            if args.confidence:
                for x, column in zip(batch.X, _confidence(args.model, last, rows, predicted)):
                    x["confidence"] = [f"{value:.4f}" for value in column]
            output.write(batch, predicted)
        except ValueError as error:
            where = f" Sequence 0 is that of line {batch.line} of {_name(args.file)}." if k else ""
            raise ValueError(f"{error}{where}") from error
    output.close()


def _last_step(model: Any, X: list) -> tuple[Any, Any]:
    """The last step of a Pipeline and what it reads; another model and X."""
    return (model[-1], model[:-1].transform(X)) if hasattr(model, "steps") else (model, X)


def _labels_of(last: Any, rows: Any) -> list:
    """Return predicted labels; segments of a segmenter are written in IOB2."""
    return getattr(last, "predict_labels", last.predict)(rows)


def _confidence(path: str, last: Any, rows: Any, predicted: list) -> list[list[float]]:
    """Probabilities of the predicted labels, or of whole segments."""
    if not hasattr(last, "predict_proba"):
        raise ValueError(
            f"{path} has no probabilities of labels; give a CRFTagger or a SemiCRFSegmenter "
            "trained by likelihood, or leave out --confidence."
        )
    found = last.predict_proba(rows)
    if hasattr(last, "predict_labels"):
        return _confidence_of_segments(last, rows, found)
    known = {label: k for k, label in enumerate(last.classes_)}
    codes = ([known[label] for label in labels] for labels in predicted)
    return [p[range(len(c)), c].tolist() for p, c in zip(found, codes)]


def _confidence_of_segments(last: Any, rows: Any, found: list) -> list[list[float]]:
    """Probability of the whole segment of each token; elsewhere that of no segment."""
    classes, label = last.classes_.tolist(), last.outside
    outside = classes.index(label) if label in classes else 0
    columns = [p[:, outside].tolist() for p in found]
    for column, segments in zip(columns, last.predict_spans(rows)):
        for start, stop, _, probability in segments:
            column[start:stop] = [probability] * (stop - start)
    return columns


class _Output:
    """Standard output, written after each batch.

    Columns are separated as ``--separator`` says, else by spaces; but by tabs if a cell contains a
    space or is empty. The last line of a file may be the first with such a cell: unless spaces
    separate the columns of the input, the output is held back until one is found.
    """

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.separator = args.separator or " "
        self.encoder = codecs.getincrementalencoder(args.encoding)()  # one mark of UTF-16
        self.held: list[str] = []
        self.is_start = True

    def write(self, batch: _Sequences, predicted: Any) -> None:
        """Write the predicted labels of a batch, after its columns."""
        if self.args.labels:
            self._send("".join(" ".join(map(str, labels)) + "\n" for labels in predicted))
            return
        if self._needs_tabs(batch, predicted):
            held = "".join(self.held).replace(self.separator, "\t")
            self.separator, self.held = "\t", []
            self._send(held)
        text = conll_text(batch.X, batch.y, predicted, self.separator, None, None)
        if self.is_start:
            check_start(text)
        self.is_start = self.is_start and not text
        if batch.separator == " " or self.separator == "\t":
            self._send(text)
        else:
            self.held.append(text)

    def close(self) -> None:
        """Write what is held back."""
        self._send("".join(self.held))

    def _needs_tabs(self, batch: _Sequences, predicted: Any) -> bool:
        if batch.separator == " " or self.separator == "\t":
            return False
        columns = (column for x in batch.X for column in x.values())
        if self.separator != " ":
            return any(" " in cell for column in columns for cell in column)
        labels = chain(batch.y or (), predicted)
        return any(" " in str(c) or not c for column in chain(columns, labels) for c in column)

    def _send(self, text: str) -> None:
        try:
            sys.stdout.buffer.write(self.encoder.encode(text))
        except UnicodeEncodeError as error:
            raise ValueError(
                f"Character {text[error.start]!r} cannot be written as {self.args.encoding}; give "
                "a file in utf-8."
            ) from error
        sys.stdout.flush()


def _evaluate(args: argparse.Namespace) -> None:
    from sklseq.metrics import sequence_accuracy, span_report, token_accuracy

    if (args.mode == "strict") != (args.scheme is not None):
        raise UsageError("--mode strict and --scheme need each other; give both or neither.")
    if args.model is not None:
        model, columns = _load(args.model)
        batches = list(_read(args, columns))
        X, y = [x for batch in batches for x in batch.X], None
        _check_filled(X, args.file)
        if batches[0].y is not None:
            y = [labels for batch in batches for labels in batch.y or ()]
        if y is None:
            raise ValueError(
                f"{_name(args.file)} has only the columns that {args.model} reads; add "
                "the true label as the last column."
            )
        found = _labels_of(*_last_step(model, X))
        predicted = [[str(label) for label in labels] for labels in found]
    else:
        y, predicted = _last_two(args)
    if args.mode or all(
        map(_is_of_span, {label for labels in (*y, *predicted) for label in labels})
    ):
        print(
            span_report(y, predicted, digits=4, mode=args.mode or "conlleval", scheme=args.scheme)
        )
    else:
        print(f"token accuracy    {token_accuracy(y, predicted):.4f}")
    print(f"sequence accuracy {sequence_accuracy(y, predicted):.4f}")


def _last_two(args: argparse.Namespace) -> tuple[list, list]:
    X, _ = _read_filled(args, args.file, label=None)
    if len(X[0]) < 2:
        raise ValueError(
            f"{_one_column(args, args.file)}; the last two must be the true and the predicted "
            "label, or give a model by -m."
        )
    columns = [list(x.values()) for x in X]
    y, predicted = [c[-2] for c in columns], [c[-1] for c in columns]
    if not set().union(*y) & set().union(*predicted):
        raise ValueError(
            f"The last two columns of {_name(args.file)} have no label in common; tag the file "
            "first, or give a model by -m."
        )
    return y, predicted


def _is_of_span(label: str) -> bool:
    return label in ("O", "B", "I", "E", "S", "L", "U") or label[1:2] == "-"


def _inspect(args: argparse.Namespace) -> None:
    from sklseq.deployment import model_card
    from sklseq.inspection import feature_names, top_features
    from sklseq.runtime import Decoder

    model, _ = _load(args.model)
    if isinstance(model, Decoder):
        raise ValueError(
            f"{args.model} is an exported model, which holds no names; give the model that train "
            "-m saved."
        )
    print(model_card(model), end="")
    if not hasattr(model[-1], "top_transitions"):
        return
    print(f"\n## Largest weights of transitions\n\n{_table(model[-1].top_transitions(args.n))}")
    print(f"\n## Largest weights of features\n\n{_table(top_features(model, args.n))}")
    if getattr(model[-1], "transition_coef_", None) is not None:
        names = feature_names(model)
        largest = model[-1].top_transition_features(args.n, feature_names=names)
        print(f"\n## Largest weights of transition features\n\n{_table(largest)}")


def _table(weights: list) -> str:
    return "\n".join("  ".join([f"{weight:10.4f}", *map(str, of)]) for weight, *of in weights)


# ----------------------------------------------------------------------------- models and tokens


def _load(path: str) -> tuple[Any, list[str]]:
    """Return a model, saved or exported, and the columns of tokens that it reads."""
    with open(path, "rb") as file:  # once: it may be a pipe
        data = file.read()
    if data.startswith(MAGIC):
        from sklseq.runtime import Decoder

        decoder = Decoder(unpack_model(data, path))
        return decoder, _checked_columns(decoder.columns_, path)
    import joblib

    from sklseq.deployment import input_columns

    try:
        model = joblib.load(io.BytesIO(data))
    except Exception as error:  # unpickling an arbitrary file may raise any error
        raise ValueError(
            f"{path} is not a model that can be loaded; give a file of sklseq train."
        ) from error
    columns = input_columns(model) if hasattr(model, "predict") else None
    return model, _checked_columns(columns, path)


def _checked_columns(columns: list[str] | None, path: str) -> list[str]:
    if columns is None:
        raise ValueError(
            f"{path} does not read columns of tokens; give a Pipeline with an extractor, as sklseq "
            "train saves it."
        )
    return columns


def _read(args: argparse.Namespace, columns: list[str]) -> Iterator[_Sequences]:
    """Yield batches of these columns, and the labels if the file has one more column."""
    n, is_empty = len(columns), True
    advice = " If its lines are text, add --text." if args.command == "tag" and n == 1 else ""
    try:
        for batch in conll_batches(_source(args.file), **_format(args)):
            n_found = len(batch.sequences[0])
            if n_found not in (n, n + 1):
                raise ValueError(
                    f"{_name(args.file)} has {counted(n_found, 'column')}, and "
                    f"{args.model} reads {n} ({', '.join(columns)}) with or without a label as the "
                    "last column; give these."
                )
            if is_empty and n_found == 1 and args.separator not in (None, " "):
                warnings.warn(
                    f"{_one_column(args, args.file)}, and each line is read as a token; if that is "
                    "wrong, give another separator by --separator.",
                    UserWarning,
                    stacklevel=2,
                )
            y = [table[n] for table in batch.sequences] if n_found > n else None
            X = [dict(zip(columns, table)) for table in batch.sequences]
            yield _Sequences(X, y, batch.separator, batch.line)
            is_empty = False
    except EncodingError:
        raise
    except FormatError as error:
        raise FormatError(f"{error}{advice}") from error
    except ValueError as error:
        raise ValueError(f"{error}{advice}") from error
    if is_empty:
        yield _Sequences([], None)


def _read_text(args: argparse.Namespace, column: str) -> Iterator[_Sequences]:
    """Yield the complete lines of each read as sequences of words."""
    number = 1
    for text in text_blocks(_source(args.file), args.encoding):
        X = [{column: line.split()} for line in text.removesuffix("\n").split("\n")]
        yield _Sequences(X if args.labels else [x for x in X if x[column]], None, " ", number)
        number += len(X)


def _read_filled(args: argparse.Namespace, file: str, **options: Any) -> tuple[list, Any]:
    try:
        X, y = read_conll(_source(file), **options, **_format(args))
    except OneColumnError as error:
        raise ValueError(
            f"{_one_column(args, file)}; give a file with columns of tokens and the label as the "
            f"last column, or {'another' if args.separator else 'the'} separator by --separator."
        ) from error
    _check_filled(X, file)
    return X, y


def _check_filled(X: list, file: str) -> None:
    if not X:
        raise ValueError(f"{_name(file)} holds no sequences; give a file with labelled tokens.")


def _name(file: str) -> str:
    return "standard input" if file == "-" else file


def _one_column(args: argparse.Namespace, file: str) -> str:
    cut = f" if lines are cut at {args.separator!r}" if args.separator else ""
    return f"{_name(file)} has one column{cut}"


def _source(file: str) -> Any:
    return _open_stream("stdin").buffer if file == "-" else file


def _open_stream(name: str) -> Any:
    """Return a standard stream; raise if it is None because a shell has closed it."""
    stream = getattr(sys, name)
    if stream is None:
        remedy = "give the name of a file" if name == "stdin" else "write it to a file by >"
        raise ValueError(f"{name} is closed; {remedy}.")
    return stream


def _format(args: argparse.Namespace) -> dict[str, Any]:
    return {"separator": args.separator, "encoding": args.encoding, "comment": args.comment}


if __name__ == "__main__":
    sys.exit(main())
