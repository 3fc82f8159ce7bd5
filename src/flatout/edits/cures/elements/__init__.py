"""Elements of tensors in Python loops: what is known of a function's loops, and the lines that make arrays for them."""
