"""The divisor in place of 0."""

# Below all sums that are not 0; the quotient of a number up to 1e8 by it is still finite.
TINY = 1e-300
