"""What a rule is, how rules are discovered, and how findings are made from them."""
