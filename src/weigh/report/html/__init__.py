"""A report as one page that opens from disk: data, templates, scripts, and uPlot."""
