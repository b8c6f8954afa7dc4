"""Label and segment sequences with scikit-learn."""

__version__ = "0.1.0.dev0"
