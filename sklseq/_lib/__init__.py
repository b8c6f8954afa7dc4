"""What every other folder may use: threads, choice of processor, base class, versions.

Imports: nothing.
"""
