"""Reports as HTML pages that need no server and no network."""
