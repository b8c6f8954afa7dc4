"""Lines of a text file."""


def as_lines(text: str) -> list[str]:
    """Cut at LF, CRLF and CR only; str.splitlines() also cuts at U+2028 and others."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
