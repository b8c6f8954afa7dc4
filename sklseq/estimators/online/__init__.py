"""Online decoding: ``OnlineDecoder``, its streams, pools and reports."""
