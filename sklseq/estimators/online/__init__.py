"""``OnlineDecoder`` and its streams."""
