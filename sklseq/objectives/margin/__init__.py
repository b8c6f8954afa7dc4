"""Structured hinge loss of hidden Markov support vector machines."""
