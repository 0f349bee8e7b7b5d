"""Tables of data as text, HTML, CSV and JSON: one file per screen."""
