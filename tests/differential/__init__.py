"""Every public question about chains and segmentations, against slow answers of more precision.

``reference.py`` has the slow answers, ``structures.py`` the chains and segmentations that are
tried, ``questions.py``, ``estimator_questions.py`` and ``segment_questions.py`` what is asked of
them, and ``run.py`` compares. Structures and questions are tables: a new one is one entry.
"""
