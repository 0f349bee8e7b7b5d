"""The version of weigh; hatch reads it when it builds the package."""

__version__ = "0.1.0"
