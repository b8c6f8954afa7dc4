"""Objectives: functions of the weights that training minimises.

Imports: _lib, data, inference.
"""
