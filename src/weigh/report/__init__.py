"""Tables of data, and what renders them: text, lines to paste, JSON, CSV."""
