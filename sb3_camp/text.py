"""Text that may be shown."""


def printable(text: str) -> str:
    """
    :param text: a text that comes from a file, or names one
    :return: the text, with escapes in place of what a terminal cannot show or would obey
    """
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
