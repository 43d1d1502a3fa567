"""Random graphs with a planted fault, an imagined target that has it, and what Winnow's search and proof make of it."""
