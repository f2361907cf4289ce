"""What a call of Varve raises when it fails."""

from __future__ import annotations


class Error(Exception):
    """A failure: what happened, to what, and what can be done about it.

    ``code`` is one of the names of ``enum varve_code`` ("not_found"), ``hint`` says in words what can be done ("" if
    nothing is known), and ``remedy`` is the same for programs: a name of ``varve::Remedy``.
    """

    code = "internal"

    def __init__(self, message: str, hint: str = "", remedy: str = "none") -> None:
        super().__init__(message)
        self.hint = hint
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.hint, self.remedy)


class InvalidArgument(Error, ValueError):
    """The program asked for something that makes no sense."""

    code = "invalid_argument"


class NotFound(Error, LookupError):
    """What was named does not exist."""

    code = "not_found"


class AlreadyExists(Error):
    """What was to be created exists."""

    code = "already_exists"


class Corrupt(Error):
    """Stored bytes contradict their checksum, score or format."""

    code = "corrupt"


class IoError(Error, OSError):
    """The operating system failed to read or write, or ranks cannot be reached."""

    code = "io_error"


class NoSpace(IoError):
    """A file system is full, or a quota reached."""

    code = "no_space"


class PermissionDenied(IoError):
    """The operating system refused access."""

    code = "permission_denied"


class Unsupported(Error):
    """A valid thing that this build or version cannot do."""

    code = "unsupported"


class ResourceLimit(Error):
    """A limit would be exceeded, or the memory is used up."""

    code = "resource_limit"


class Busy(Error):
    """Somebody else is in the way; trying again may help."""

    code = "busy"


class Cancelled(Error):
    """The caller asked to stop."""

    code = "cancelled"


class Internal(Error):
    """A bug in Varve."""

    code = "internal"


class VarveWarning(UserWarning):
    """What the user should know, though nothing failed."""


_KINDS: dict[str, type[Error]] = {
    kind.code: kind
    for kind in (
        InvalidArgument,
        NotFound,
        AlreadyExists,
        Corrupt,
        IoError,
        NoSpace,
        PermissionDenied,
        Unsupported,
        ResourceLimit,
        Busy,
        Cancelled,
        Internal,
    )
}


def make(code: str, message: str, hint: str = "", remedy: str = "none") -> Error:
    """The exception of a code, not raised yet."""
    return _KINDS.get(code, Internal)(message, hint, remedy)
