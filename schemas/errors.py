"""Errors that a user can act on."""


class RarewordError(Exception):
    """A sentence for the user: what was wrong, where (file, row, field, option), what to do.

    The command line prints it without a traceback and ends with exit code 1. On a remote runner
    only the text survives; it is found again after the name of this class.
    """
