"""A rule as data, how rules are found, and how findings are made of them."""
