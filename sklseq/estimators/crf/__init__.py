"""``CRFTagger``, ``CRFTaggerCV`` and their private helpers."""
