"""One module per served API, named after it, with one function `handle`."""
