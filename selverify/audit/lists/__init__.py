"""Lists of candidates at a state: what an order and a number of calls would have found."""
