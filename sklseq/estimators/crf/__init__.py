"""``CRFTagger`` and what only it uses."""
