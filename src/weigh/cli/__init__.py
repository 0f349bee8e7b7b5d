"""The command line: parse, call one flow function, print, return the code."""
