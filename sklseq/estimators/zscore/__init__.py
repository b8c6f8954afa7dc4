"""``ZScoreTagger``, ``ZScoreTaggerCV`` and what only they use."""
