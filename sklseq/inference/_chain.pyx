def _placeholder():
    return 0
