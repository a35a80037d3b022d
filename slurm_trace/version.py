"""The version of the package, and of the evaluator whose results it prints."""

VERSION = "0.1.0"
EVALUATOR_VERSION = "3"
