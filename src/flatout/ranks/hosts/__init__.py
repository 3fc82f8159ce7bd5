"""Several machines of one training: their addresses, and what each hears of the others."""
