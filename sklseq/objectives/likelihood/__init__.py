"""Negative log-likelihood of linear chains, its gradient, Hessian, dual and stochastic steps."""
