"""What can be wrong with data, said in one way."""


class DataError(ValueError):
    """Data that cannot be used; the message names the place and says what to do."""

    def __init__(
        self,
        problem: str,
        *,
        file: str | None = None,
        recording: str | None = None,
        column: str | None = None,
    ):
        super().__init__(problem)
        self.file = file
        self.recording = recording
        self.column = column

    def __str__(self) -> str:
        places = [
            self.file,
            None if self.recording is None else f"recording '{self.recording}'",
            None if self.column is None else f"column '{self.column}'",
        ]
        where = ", ".join(place for place in places if place is not None)
        problem = str(self.args[0])
        return f"{where}: {problem}" if where else problem
