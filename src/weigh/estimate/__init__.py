"""Curves through a few measured sizes, their margins, and what past runs say."""
