"""``CRFTagger``, ``CRFTaggerCV`` and what only they use."""
