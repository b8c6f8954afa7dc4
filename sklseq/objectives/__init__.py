"""What training minimises, as a function of weights.

Imports: _lib, data, inference.
"""
