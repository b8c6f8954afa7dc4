"""``ZScoreTagger``, ``ZScoreTaggerCV`` and their private helpers."""
