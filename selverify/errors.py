"""One error tree. Every message names what was given, what was expected, and where."""


class SelverifyError(Exception):
    """Base of every error this library raises on purpose."""


class ParamsError(SelverifyError, ValueError):
    """A parameter is missing, misspelt or outside its range."""


class ArtifactError(SelverifyError, FileNotFoundError):
    """A file that an earlier stage should have written is not there."""


class SchemaError(SelverifyError, ValueError):
    """An artifact is there but was written under another schema."""


class LeakError(SelverifyError, ValueError):
    """A test problem also stands in the training data."""


class BudgetError(SelverifyError, ValueError):
    """A budget is below 1, or a search asked for more calls than it was given."""


class ProtocolError(SelverifyError, RuntimeError):
    """A search or a backend broke the request and reply protocol."""


class NoReply(ProtocolError):
    """A server gave no reply that could be used, after all retries; it may give one later."""


class Refusal(ProtocolError):
    """The server refused a request, and would again; ``status`` is that of HTTP."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status
