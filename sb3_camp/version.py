"""The version of the package, for whoever must not import the package as a whole."""

__version__ = "0.1.0"
