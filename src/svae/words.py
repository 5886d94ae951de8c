"""Numbers in sentences."""


def counted(number: int, noun: str) -> str:
    """As 1 recording, or 1,000 recordings."""
    return f"{number:,} {noun}" + "s" * (number != 1)
