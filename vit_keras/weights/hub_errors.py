"""What hubs answer, as errors for users."""

REFUSED = (401, 403)
LONGEST_REASON = 200


def hub_error(error: Exception, *, missing: str, refused: str, unreachable: str) -> OSError:
    """The error for a user.

    Args:
        error: What the hub's package raised.
        missing: The message where the hub has no such model.
        refused: The message where it wants credentials or consent.
        unreachable: The message for all else.

    Returns:
        A FileNotFoundError, a PermissionError or a ConnectionError.
    """
    status = status_of(error)
    if status == 404:
        return FileNotFoundError(missing)
    if status in REFUSED or type(error).__name__ == "UnauthenticatedError":  # of kagglehub
        return PermissionError(refused)
    return ConnectionError(unreachable)


def status_of(error: Exception) -> int | None:
    """The status that the hub answered; None if it did not answer."""
    return getattr(getattr(error, "response", None), "status_code", None)


def reason_of(error: Exception) -> str:
    """The first line of an error's message, or the error's name."""
    return str(error).strip().partition("\n")[0][:LONGEST_REASON] or type(error).__name__
